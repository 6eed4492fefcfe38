"""Worker processes for Kafka -> Kafka bridges: ``workers = N`` (design section 5).

With one worker everything runs in the node's own process, and nothing here is used. With more, the node
starts N processes (`supervisor`, `process`) and tells them over a channel each (`channel`) which bridges to
run; each relays the lanes that the consumer group gives it (`worker`) and reports. The node shows such a
bridge as the sum over its workers (`remote`).
"""
