"""A log in Kafka with cells in PostgreSQL or SQLite: needs the extras ``kafka`` and ``postgres``.

* ``client``: the brokers, and the settings without which a topic is refused.
* ``commits``: what one record of Kafka holds.
* ``records``: the producer, the consumers, and where partitions end.
* ``group``: how workers share the partitions.
* ``piece_files``: pieces of snapshots as files.
* ``log``, ``store``: what the library uses.
"""
