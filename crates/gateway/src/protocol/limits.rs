//! Decides every limit of the wire, in one place: how much a client, a server or an operator may
//! send, and how long each may take.

use std::time::Duration;

/// The deepest nesting of objects and arrays in a message.
pub(crate) const DEPTH: usize = 128;
/// Members of one object whose members are read, and elements of one array.
pub(crate) const MEMBERS: usize = 10_000;
/// The longest string, and the most digits, that may be an id.
pub(crate) const ID_BYTES: usize = 1024;
/// The largest message from a client, body or line, unless `max_request` says otherwise.
pub(crate) const FROM_CLIENT: usize = 16 << 20;
/// The smallest `max_request`.
pub(crate) const LEAST_FROM_CLIENT: usize = 64 << 10;
/// The largest `max_request`: the bytes that one session may have in flight in all.
pub(crate) const MOST_FROM_CLIENT: usize = CALL_BYTES;
/// Bytes of large requests that the gateway holds at once over HTTP, for all clients together.
pub(crate) const REQUEST_BYTES: usize = 256 << 20;
/// How much of a body that is too large is still read, to find its id and so that the client lives
/// to read the refusal.
pub(crate) const DISCARDED: usize = 256 << 20;
/// The largest write that may be queued.
pub(crate) const QUEUED: usize = 4 << 20;
/// The largest message from a server: body, line, event or frame.
pub(crate) const FROM_SERVER: usize = 16 << 20;
/// The largest message that is copied out of the buffer it was read into. A larger message fills
/// its buffer and keeps it.
pub(crate) const COPIED: usize = 64 << 10;
/// The longest line of an event stream that is not data.
pub(crate) const SSE_FIELD: usize = 64 << 10;
/// How long the head of a request may take to arrive.
pub(crate) const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long the body of any request may take to arrive, whatever its size.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);
/// The slowest body that the gateway still reads after `BODY_TIME`, in bytes a second. No body may
/// pause for longer than `BODY_TIME`.
pub(crate) const BODY_RATE: u64 = 1024;
/// How long a connection may stay open without a request in flight and without bytes read or
/// written.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// Connections to one listener at a time.
pub(crate) const CONNECTIONS: usize = 1024;
/// Connections to the admin listener at a time.
pub(crate) const ADMIN_CONNECTIONS: usize = 64;
/// The largest body of an admin request.
pub(crate) const ADMIN_BODY: usize = 4 << 10;
/// Tools sharing a breaker that the admin API lists by name; further tools are only counted.
pub(crate) const COVERED: usize = 50;
/// Queue items on one page of the admin API.
pub(crate) const QUEUE_PAGE: usize = 100;
/// Events that are kept for readers of the event stream.
pub(crate) const EVENTS: usize = 1_000;
/// Readers of the event stream at a time.
pub(crate) const EVENT_READERS: usize = 16;
/// Streams on one HTTP/2 connection.
pub(crate) const STREAMS: u32 = 100;
/// Client sessions of one gateway.
pub(crate) const SESSIONS: usize = 10_000;
/// How long an unused session is kept.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// How long a session may be idle before it gives its server connections back, unless
/// `session_idle` says otherwise.
pub(crate) const SERVERS_IDLE: Duration = Duration::from_secs(300);
/// The longest interval between two searches for idle sessions.
pub(crate) const SESSION_LOOK: Duration = Duration::from_secs(60);
/// Calls of one client session that may be in flight.
pub(crate) const CALLS: usize = 1024;
/// Bytes of requests of one client session that may be in flight.
pub(crate) const CALL_BYTES: usize = 64 << 20;
/// Bytes of large answers that wait for their clients, over all clients, unless `answer_memory`
/// says otherwise.
pub(crate) const ANSWER_BYTES: usize = 256 << 20;
/// The smallest `answer_memory`: one answer of the largest size that a server may send.
pub(crate) const LEAST_ANSWER_BYTES: usize = FROM_SERVER;
/// The largest `answer_memory`.
pub(crate) const MOST_ANSWER_BYTES: usize = 4 << 30;
/// Messages for a client that it has not read yet.
pub(crate) const PENDING_EVENTS: usize = 64;
/// Bytes for a client that it has not read yet; above this, the client is asked no further
/// questions.
pub(crate) const PENDING_BYTES: usize = 16 << 20;
/// Bytes that wait to be sent to one server: notifications, and answers to its questions.
pub(crate) const TELL_BYTES: usize = 8 << 20;
/// The cost of one such message beside its bytes.
pub(crate) const TELL_EACH: usize = 8 << 10;
/// How long a server may take to accept one of them.
pub(crate) const TELL_TIME: Duration = Duration::from_secs(5);
/// Events of one stream that are kept for a client that reconnects.
pub(crate) const KEPT_EVENTS: usize = 256;
/// Bytes of one stream that are kept for a client that reconnects.
pub(crate) const KEPT_BYTES: usize = 1 << 20;
/// Streams of one session that are kept for a client that reconnects.
pub(crate) const KEPT_STREAMS: usize = 32;
/// Bytes that are kept of all streams of one session, read or not.
pub(crate) const SESSION_BYTES: usize = 32 << 20;
/// The interval of keep-alive comments on an idle event stream.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a client that wants progress is told of a call that made none.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long connecting to a server may take, until the first message can be sent.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long a server on a WebSocket may be silent, without even a pong to the gateway's pings.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Pages of one list that are read from a server.
pub(crate) const PAGES: usize = 50;
/// Entries of one list (tools, prompts, resources, templates) that a server may offer.
pub(crate) const LISTED: usize = 2_000;
/// Bytes of one list of a server.
pub(crate) const LIST_BYTES: usize = 4 << 20;
/// How long a list of one server may take before the merged list goes without it.
pub(crate) const LIST_TIME: Duration = Duration::from_secs(30);
/// Parked calls per server: calls that wait for their client's answers.
pub(crate) const PARKED: usize = 1024;
/// How long a parked call waits for its client.
pub(crate) const PARK_TIME: Duration = Duration::from_secs(600);
/// How often a server may ask for more input before its call is given up.
pub(crate) const INPUT_ROUNDS: usize = 16;
/// How long a server started as a process may take for its handshake: its command may install
/// packages first.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(300);
/// How long a remote server may take for its handshake, in both eras together.
pub(crate) const REMOTE_HANDSHAKE: Duration = Duration::from_secs(30);
/// How long a silent server may take to answer a ping. It is pinged twice before it is replaced.
pub(crate) const PING: Duration = Duration::from_secs(5);
/// How soon after a failed attempt to connect a call may cause the next one, whatever the backoff
/// says.
pub(crate) const ASKED_TRY: Duration = Duration::from_secs(2);
/// The same where connecting starts a process.
pub(crate) const ASKED_START: Duration = Duration::from_secs(5);
/// How long the probe for the modern era may take before the server counts as legacy.
pub(crate) const PROBE: Duration = Duration::from_secs(10);
/// Server processes at a time.
pub(crate) const PROCESSES: usize = 256;
/// How long a process must have been unused before it may be stopped to make room for another.
pub(crate) const GIVES_WAY: Duration = Duration::from_secs(10);
/// Warm children: processes that wait for their next client.
pub(crate) const WARM: usize = 64;
/// How long a child has to exit after its stdin is closed, and again after SIGTERM.
pub(crate) const CHILD_GRACE: Duration = Duration::from_secs(2);
/// How long a call waits for a server that is starting or reconnecting.
pub(crate) const SERVER_WAIT: Duration = Duration::from_secs(20);
/// How long a client waits for its handshake with a server that starts for the first time.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(4);
/// Servers that `check` connects to at a time.
pub(crate) const LOOKS: usize = 16;
/// How long a call waits for the tool list of its server, if no list of the server was read before.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(3);
/// Results that are too large for their clients and are kept to be read in pieces.
pub(crate) const RESULTS: usize = 64;
/// Bytes of all kept results.
pub(crate) const RESULT_BYTES: usize = 64 << 20;
/// How long a kept result stays readable.
pub(crate) const RESULT_KEPT: Duration = Duration::from_secs(600);
/// Bytes of a kept result that are read at a time.
pub(crate) const RESULT_PIECE: usize = 64 << 10;
/// How long the gateway waits for the answer to a cancelled read.
pub(crate) const STOPPED_READ: Duration = Duration::from_secs(5);
/// Detached calls: calls that run on although their clients have left.
pub(crate) const DETACHED: usize = 256;
/// The longest wait for calls that still run after their session has ended.
pub(crate) const LEFT_RUNNING: Duration = Duration::from_secs(120);
/// The longest margin before its client's timeout at which a call is answered with "still running".
pub(crate) const CAP_MARGIN: Duration = Duration::from_secs(5);
/// How long a call in flight may take for its last answer when the gateway shuts down.
pub(crate) const LAST_ANSWER: Duration = Duration::from_millis(1500);
/// How long a client's list request waits for one server where a merged or cached list can be
/// answered instead: below the five seconds that the least patient clients wait.
pub(crate) const LIST_WAIT: Duration = Duration::from_secs(4);
/// How long a client waits for a server that is starting, where its cached list can be answered
/// instead.
pub(crate) const CATALOG_WAIT: Duration = Duration::from_millis(50);
/// The same for the handshake, where only the handshake of another kind of client is cached.
pub(crate) const GREETING_WAIT: Duration = Duration::from_millis(250);
/// How long the list that the gateway read at startup is as good as a new one.
pub(crate) const LIST_FRESH: Duration = Duration::from_secs(10);
/// Lists and pages of lists in the catalog cache, per server and kind of client.
pub(crate) const LISTS_KEPT: usize = 4 + PAGES;
/// List requests to one server that run on after their clients stopped waiting.
pub(crate) const LATE_LISTS: usize = 16;
/// The longest tool name, in bytes, that has a metric label of its own.
pub(crate) const LABEL: usize = 256;
