"""Who decides: an authorizer that speaks Envoy's ext_authz over HTTP, and an issuer of tokens with its keys behind a
URL. Both can go away and come back."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER, AUDIENCE, KEY = "https://idp.example", "seawall", "k1"
HANDSHAKE = ("initialize", "server/discover")


class Service:
    """Something on a port of loopback that keeps its port while it is away."""

    def __init__(self):
        self.port, self.listener = 0, None
        self.back()

    def back(self):
        self.connections, self.gone = [], threading.Event()
        self.listener = Listener(self)
        self.port = self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def away(self):
        """Refuses connections, and ends those there are."""
        if not self.listener:
            return
        self.gone.set()
        self.listener.shutdown()
        self.listener.server_close()
        self.listener = None
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It has ended.


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service):
        self.service = service
        super().__init__(("127.0.0.1", service.port), Handler)

    def process_request(self, request, client_address):
        self.service.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, *_):
        pass  # A connection ended under an answer.


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.service.answer(body)
        if answer is None:
            self.server.service.gone.wait()
            self.close_connection = True
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Authorizer(Service):
    """Allows everything but what `acts` says by method: `deny`, `hang` or `503`."""

    def __init__(self):
        self.acts = {}
        super().__init__()

    def answer(self, body):
        act = self.acts.get(json.loads(body)["method"], "allow")
        answers = {"allow": (200, ""), "deny": (403, "caller lacks the grant"), "503": (503, ""), "hang": None}
        return answers[act]


class Issuer(Service):
    """Signs tokens with ES256, and serves the key to check them with; `status` 503: it has none to show."""

    def __init__(self):
        self.status, self.key = 200, ec.generate_private_key(ec.SECP256R1())
        super().__init__()

    def answer(self, _):
        own = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        keys = {"keys": [{**own, "kid": KEY, "alg": "ES256", "use": "sig"}]}
        return (200, json.dumps(keys)) if self.status == 200 else (self.status, "")

    def token(self, seconds=3600, key=None):
        claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + seconds}
        return jwt.encode(claims, key or self.key, "ES256", {"kid": KEY})

    def forged(self):
        """A token of somebody who has another key."""
        return self.token(key=ec.generate_private_key(ec.SECP256R1()))
