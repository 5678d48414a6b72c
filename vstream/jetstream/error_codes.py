"""Error codes of the JetStream API that vstream acts on (nats-server, server/errors.json)."""

CLUSTER_NOT_AVAILABLE = 10008
"""JSClusterNotAvailErr: no leader answers for the meta group or the stream at this moment."""
CLUSTER_NOT_LEADER = 10009
"""JSClusterNotLeaderErr: whoever was asked is not the leader any more."""
TEMPORARILY_UNAVAILABLE = frozenset({CLUSTER_NOT_AVAILABLE, CLUSTER_NOT_LEADER})
"""The request was refused and nothing has happened: asking again is safe."""
CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
CLUSTER_MEMBER_NOT_FOUND = 10044
"""JSClusterServerNotMemberErr: the server is not a member of the meta group."""
STREAM_MISMATCH = 10056
"""JSStreamMismatchErr: the stream in the subject is another than the one in the request's body."""
STREAM_NOT_FOUND = 10059
WRONG_LAST_STREAM = 10060
"""JSStreamNotMatchErr: `Nats-Expected-Stream` names another stream than the one that stores the message."""
STREAM_MOVE_IN_PROGRESS = 10124
"""JSStreamMoveInProgressF: the change before is not over."""
