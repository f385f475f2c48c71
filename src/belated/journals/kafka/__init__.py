"""A log in Kafka with cells in PostgreSQL or SQLite; requires extras ``kafka`` and ``postgres``.

* ``client``: client settings, errors, and topics with their required settings.
* ``commits``: the format of a Kafka record.
* ``records``: the producer, the consumers, and offset queries.
* ``group``: the consumer group in which workers share partitions.
* ``piece_files``: pieces of snapshots as files.
* ``log``, ``store``: the public classes.
"""
