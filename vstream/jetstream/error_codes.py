"""Error codes of the JetStream API that vstream acts on (nats-server, server/errors.json)."""

NO_SUITABLE_PEERS = 10005
"""JSClusterNoPeersErrF: placement, tags or replicas fit no server that the leader of the meta group has heard of lately."""
CLUSTER_NOT_AVAILABLE = 10008
"""JSClusterNotAvailErr: the meta group or the stream has no leader right now."""
CLUSTER_NOT_LEADER = 10009
"""JSClusterNotLeaderErr: the server that answered is no longer the leader."""
TEMPORARILY_UNAVAILABLE = frozenset({CLUSTER_NOT_AVAILABLE, CLUSTER_NOT_LEADER})
"""The request was refused and nothing has happened: asking again is safe."""
ELECTION_TIMEOUT = 20.0
"""Seconds until they end. An election takes 4 to 9 after a leader was killed, and milliseconds after a step-down."""
CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
CLUSTER_MEMBER_NOT_FOUND = 10044
"""JSClusterServerNotMemberErr: the server is not a member of the meta group."""
STREAM_MISMATCH = 10056
"""JSStreamMismatchErr: the subject and the body of the request name different streams."""
STREAM_NOT_FOUND = 10059
WRONG_LAST_STREAM = 10060
"""JSStreamNotMatchErr: `Nats-Expected-Stream` names a stream other than the one that stores the message."""
STREAM_MOVE_IN_PROGRESS = 10124
"""JSStreamMoveInProgressF: the previous move has not finished."""
STREAM_EXISTS_ALREADY = 10130
"""JSStreamNameExistRestoreFailedErr: a stream of that name is there, or is being restored."""
MEMBER_CHANGE_IN_PROGRESS = 10202
"""JSClusterServerMemberChangeInflightErr: the meta group takes in or removes another member, and does one at a time."""
