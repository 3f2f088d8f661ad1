"""A relay on loopback that cuts every connection when it is told to: how networks drop connections under a call."""

import socket
import threading


class Cut:
    """Relays to `port`; `port` of its own."""

    def __init__(self, port):
        self.to, self.pairs = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()

    def cut(self):
        """Ends all connections there are; new ones are welcome."""
        pairs, self.pairs = self.pairs, []
        for each in (end for pair in pairs for end in pair):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        self.cut()


def _copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
