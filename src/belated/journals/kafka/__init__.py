"""A log in Kafka with PostgreSQL as its shelf: needs the extras ``kafka`` and ``postgres``.

* ``commits``: what one record of Kafka holds.
* ``topic``: the topic of a bandit, and the settings without which it is refused.
* ``writer``, ``reader``, ``offsets``: the producer, the consumer, and where partitions end.
* ``group``, ``coordination``: how workers share the partitions.
* ``log``, ``journal``, ``store``: what the library uses.
"""
