#!/usr/bin/env python3
"""Stand in front of a server, as TLS terminator or as HTTP proxy, for the tests.

    tls_front.py tls CERTIFICATE KEY BACKEND_PORT
    tls_front.py proxy - - BACKEND_PORT

Prints its own port and serves until it is killed. The proxy sends whatever host is asked for to
BACKEND_PORT: plain requests in absolute form, and tunnels (CONNECT).
"""

import socket
import ssl
import sys
import threading


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def both_ways(front, back):
    threading.Thread(target=pump, args=(back, front), daemon=True).start()
    pump(front, back)


def serve_tls(front, context, backend):
    try:
        secure = context.wrap_socket(front, server_side=True)
    except (OSError, ssl.SSLError):  # the client did not like the certificate
        front.close()
        return
    both_ways(secure, socket.create_connection(backend))


def serve_proxy(front, backend):
    back = socket.create_connection(backend)
    stream = front.makefile("rb")
    is_first = True
    while line := stream.readline():
        method, target, version = line.decode().split()
        headers = []
        while (header := stream.readline()) not in (b"\r\n", b""):
            headers.append(header)
        if method == "CONNECT":
            front.sendall(b"HTTP/1.1 200 tunnel\r\n\r\n")
            both_ways(front, back)
            return
        if is_first:
            threading.Thread(target=pump, args=(back, front), daemon=True).start()
            is_first = False
        path = "/" + target.split("://", 1)[1].split("/", 1)[1]
        length = next((int(h.split(b":")[1]) for h in headers
                       if h.lower().startswith(b"content-length:")), 0)
        back.sendall(f"{method} {path} {version}\r\n".encode() + b"".join(headers) + b"\r\n" +
                     stream.read(length))


def main():
    mode, certificate, key, port = sys.argv[1:]
    backend = ("127.0.0.1", int(port))
    context = None
    if mode == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        front, _ = listener.accept()
        front.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve, arguments = ((serve_tls, (front, context, backend)) if context else
                            (serve_proxy, (front, backend)))
        threading.Thread(target=serve, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main()
