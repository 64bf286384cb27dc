"""What an error of librdkafka means for a message: its own fault, or the broker's?"""

from __future__ import annotations

from confluent_kafka import KafkaError

from commitrelay.publisher import NOT_SENT, Outcome, Refused, Unreachable

_REFUSED_LOCALLY = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError._BAD_MSG,
        KafkaError._INVALID_TYPE,
    }
)

_OUTAGES = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.NOT_CONTROLLER,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.STALE_BROKER_EPOCH,
    }
)


def outcome_of(error: KafkaError, topic: str) -> Outcome:
    """The outcome of a message that was not delivered.

    The broker's own codes are positive: what it says about a message refuses the message, what
    it says about itself is an outage. librdkafka's are negative, and nearly all about the network.
    """
    code = error.code()
    if code == KafkaError._INVALID_DIFFERENT_RECORD:
        return NOT_SENT
    if code in _REFUSED_LOCALLY or (code > 0 and code not in _OUTAGES):
        return Refused(f"topic {topic}: {error.str()}{_ADVICE.get(code, '')}")
    return Unreachable(f"topic {topic}: {error.str()}")


_ADVICE = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        ": store a reference instead, or raise the topic's max.message.bytes"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ": give the relay's user the right to WRITE to it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: ": create it or use ?create_topics=true",
    KafkaError._UNKNOWN_TOPIC: ": create it or use ?create_topics=true",
}
