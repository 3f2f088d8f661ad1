//! Every limit of the wire, in one place: how much a stranger may send before we say no.

use std::time::Duration;

/// The deepest nesting of objects and arrays in a message.
pub(crate) const DEPTH: usize = 128;
/// Members of one object that is looked into, and elements of one array.
pub(crate) const MEMBERS: usize = 10_000;
/// The longest string that may be an id.
pub(crate) const ID_BYTES: usize = 256;
/// The largest message from a client, body or line, unless `max_request` says otherwise; and what
/// that may say.
pub(crate) const FROM_CLIENT: usize = 16 << 20;
/// The smallest `max_request`.
pub(crate) const LEAST_FROM_CLIENT: usize = 64 << 10;
/// The largest `max_request`: what one session may have under way in all.
pub(crate) const MOST_FROM_CLIENT: usize = CALL_BYTES;
/// Bytes of large requests that are held at once over HTTP, of all clients.
pub(crate) const REQUEST_BYTES: usize = 256 << 20;
/// How much of a body that is too large is still read for the sake of its id, and so that its
/// sender lives to read why.
pub(crate) const DISCARDED: usize = 256 << 20;
/// The largest write that waits for its server.
pub(crate) const QUEUED: usize = 4 << 20;
/// The largest message from a server: body, line, event or frame.
pub(crate) const FROM_SERVER: usize = 16 << 20;
/// The largest message that is copied out of the buffer it was read into. What is larger fills its
/// buffer.
pub(crate) const COPIED: usize = 64 << 10;
/// The longest line of an event stream that is not data.
pub(crate) const SSE_FIELD: usize = 64 << 10;
/// How long the head of a request may take to arrive.
pub(crate) const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long the body of a request may take to arrive, whatever its size.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);
/// The slowest body that is still waited for, in bytes a second, beyond `BODY_TIME`; none may pause
/// for longer than that.
pub(crate) const BODY_RATE: u64 = 1024;
/// How long a connection may be open on which nothing is asked and nothing is read.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// Connections to one listener at a time.
pub(crate) const CONNECTIONS: usize = 1024;
/// Connections to the operator's listener at a time.
pub(crate) const ADMIN_CONNECTIONS: usize = 64;
/// The largest body that an operator may send.
pub(crate) const ADMIN_BODY: usize = 4 << 10;
/// Tools that an operator is told by name of those that share a breaker; more are only counted.
pub(crate) const COVERED: usize = 50;
/// Waiting writes that an operator is shown at a time.
pub(crate) const QUEUE_PAGE: usize = 100;
/// Events that are kept for operators who read along.
pub(crate) const EVENTS: usize = 1_000;
/// Operators who read along at a time.
pub(crate) const EVENT_READERS: usize = 16;
/// Streams on one HTTP/2 connection.
pub(crate) const STREAMS: u32 = 100;
/// Client sessions of one gateway.
pub(crate) const SESSIONS: usize = 10_000;
/// How long a session is kept that nobody uses.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// How long a session may be idle before it gives its servers back, unless `session_idle` says
/// otherwise.
pub(crate) const SERVERS_IDLE: Duration = Duration::from_secs(300);
/// How often it is looked which sessions are idle, at most.
pub(crate) const SESSION_LOOK: Duration = Duration::from_secs(60);
/// Calls of one client session that may be under way.
pub(crate) const CALLS: usize = 1024;
/// Bytes of requests of one client session that may be under way.
pub(crate) const CALL_BYTES: usize = 64 << 20;
/// Bytes of large answers that wait for their clients, over all of them, unless `answer_memory`
/// says otherwise.
pub(crate) const ANSWER_BYTES: usize = 256 << 20;
/// The smallest `answer_memory`: one answer as large as a server may give.
pub(crate) const LEAST_ANSWER_BYTES: usize = FROM_SERVER;
/// The largest `answer_memory`.
pub(crate) const MOST_ANSWER_BYTES: usize = 4 << 30;
/// Messages on their way to a client that has not taken them yet.
pub(crate) const PENDING_EVENTS: usize = 64;
/// Bytes on their way to a client that has not taken them yet, beyond which nothing is asked of it.
pub(crate) const PENDING_BYTES: usize = 16 << 20;
/// Bytes that wait to be told to one server: notifications, and answers to its questions.
pub(crate) const TELL_BYTES: usize = 8 << 20;
/// What one message that waits costs beside its bytes.
pub(crate) const TELL_EACH: usize = 8 << 10;
/// How long a server may take to take them.
pub(crate) const TELL_TIME: Duration = Duration::from_secs(5);
/// Events kept of one stream for a client that comes back.
pub(crate) const KEPT_EVENTS: usize = 256;
/// Bytes kept of one stream for a client that comes back.
pub(crate) const KEPT_BYTES: usize = 1 << 20;
/// Streams kept of one session for a client that comes back.
pub(crate) const KEPT_STREAMS: usize = 32;
/// Bytes kept of all streams of one session, read or not.
pub(crate) const SESSION_BYTES: usize = 32 << 20;
/// How often a stream that has nothing to say shows that it is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a client that wants progress hears of a call of which there is no news.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a connection to a server may take, until the first message can go.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long a server on a WebSocket may say nothing at all, not even that it heard our pings.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Pages of one list that are read from a server.
pub(crate) const PAGES: usize = 50;
/// Things of one kind (tools, prompts, resources, templates) that a server may offer.
pub(crate) const LISTED: usize = 2_000;
/// Bytes of one list of a server.
pub(crate) const LIST_BYTES: usize = 4 << 20;
/// How long a list of one server may take before the merged list goes without it.
pub(crate) const LIST_TIME: Duration = Duration::from_secs(30);
/// Calls that wait for their client's answers, per server.
pub(crate) const PARKED: usize = 1024;
/// How long a parked call waits for its client.
pub(crate) const PARK_TIME: Duration = Duration::from_secs(600);
/// How often a server may ask for more input before its call is given up.
pub(crate) const INPUT_ROUNDS: usize = 16;
/// How long a server that is started may take for its handshake: its command may install something
/// first.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(300);
/// How long a remote server may take for its handshake, in both eras together.
pub(crate) const REMOTE_HANDSHAKE: Duration = Duration::from_secs(30);
/// How long a server of which nothing is heard may take to answer a ping; it is pinged twice before
/// it is replaced.
pub(crate) const PING: Duration = Duration::from_secs(5);
/// How soon after the end of a failed try a call may be the next one, whatever the backoff says.
pub(crate) const ASKED_TRY: Duration = Duration::from_secs(2);
/// The same where a try starts a process.
pub(crate) const ASKED_START: Duration = Duration::from_secs(5);
/// How long the question "are you modern?" may take before the answer is taken to be no.
pub(crate) const PROBE: Duration = Duration::from_secs(10);
/// Processes of servers at a time.
pub(crate) const PROCESSES: usize = 256;
/// How long nobody must have used the process that gives way when there is no room for another.
pub(crate) const GIVES_WAY: Duration = Duration::from_secs(10);
/// Children that wait for their next client.
pub(crate) const WARM: usize = 64;
/// How long a child has to go after its stdin is closed, and again after SIGTERM.
pub(crate) const CHILD_GRACE: Duration = Duration::from_secs(2);
/// How long a call waits for a server that is starting or coming back.
pub(crate) const SERVER_WAIT: Duration = Duration::from_secs(20);
/// How long a client waits for its handshake with a server that starts for the first time.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(4);
/// Servers that `check` looks at at a time.
pub(crate) const LOOKS: usize = 16;
/// How long a call waits to learn what its server says of its tools, if nobody has listed them
/// before.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(3);
/// Results that are too large for their clients and kept to be read.
pub(crate) const RESULTS: usize = 64;
/// Bytes of all of them.
pub(crate) const RESULT_BYTES: usize = 64 << 20;
/// How long they are kept.
pub(crate) const RESULT_KEPT: Duration = Duration::from_secs(600);
/// Bytes of one that are read at a time.
pub(crate) const RESULT_PIECE: usize = 64 << 10;
/// How long the answer to a read is waited for that its server was told to stop.
pub(crate) const STOPPED_READ: Duration = Duration::from_secs(5);
/// Calls that run on although their clients have gone.
pub(crate) const DETACHED: usize = 256;
/// How long what a client left running is waited for after its session, at most.
pub(crate) const LEFT_RUNNING: Duration = Duration::from_secs(120);
/// How long before its client's own limit a call is answered with "still running", at most.
pub(crate) const CAP_MARGIN: Duration = Duration::from_secs(5);
/// How long a call that is under way when the gateway ends may take to be answered as it is.
pub(crate) const LAST_ANSWER: Duration = Duration::from_millis(1500);
/// How long a list waits for one server where others, or what it listed before, can be answered
/// instead: below the five seconds that the least patient clients wait.
pub(crate) const LIST_WAIT: Duration = Duration::from_secs(4);
/// How long a client waits for a server that is starting, where what it said last can be answered
/// instead.
pub(crate) const CATALOG_WAIT: Duration = Duration::from_millis(50);
/// The same for the handshake, where only what the server said to another kind of client can be
/// answered.
pub(crate) const GREETING_WAIT: Duration = Duration::from_millis(250);
/// How long a list that the gateway read at the start of a conversation is as good as one that is
/// read anew.
pub(crate) const LIST_FRESH: Duration = Duration::from_secs(10);
/// Lists and pages of lists that are remembered of one server, for one kind of client.
pub(crate) const LISTS_KEPT: usize = 4 + PAGES;
/// Lists of one server that go on although nobody waits for them any more.
pub(crate) const LATE_LISTS: usize = 16;
/// The longest name of a tool that is counted apart, in bytes.
pub(crate) const LABEL: usize = 256;
