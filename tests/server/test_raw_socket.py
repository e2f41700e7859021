"""A client that does not behave, on raw sockets. After every test the server is healthy and its slots are free."""

import json
import socket
import struct
import time
import urllib.request

from serve_process import Server, ServerTest

BODY = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 6,
                   "temperature": 0}).encode()
ENDLESS = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 900,
                      "ignore_eos": True, "stream": True}).encode()


def head(length, path="/v1/chat/completions", extra=""):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n{extra}\r\n").encode()


def parse_answer(data):
    """(status, body, rest) of the first response in `data`, or None while it is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = int(fields.get("content-length", 0))
    if len(data) < end + 4 + length:
        return None
    return int(lines[0].split()[1]), data[end + 4:end + 4 + length], data[end + 4 + length:]


class RawTest(ServerTest):
    options = ("--max-body", "64KiB", "--drain-timeout", "1")

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), "the server has ended")
        self.server.wait_until_idle()
        self.assertEqual(self.answer(self.open(), head(len(BODY)) + BODY)[0], 200)

    def open(self, server=None):
        connection = socket.create_connection(("127.0.0.1", (server or self.server).port), timeout=60)
        self.addCleanup(connection.close)
        return connection

    def receive(self, connection, data=b""):
        """One whole response; None when the server closed the connection before."""
        while (parsed := parse_answer(data)) is None:
            try:
                more = connection.recv(65536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return parsed

    def answer(self, connection, data):
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused early; the answer may still be there
        return self.receive(connection)

    def refused(self, data, *statuses):
        """The server refuses with one of these statuses, or closes the connection."""
        connection = self.open()
        answer = self.answer(connection, data)
        if answer is not None:
            self.assertIn(answer[0], statuses, answer[1][:300])
        return answer

    def test_single_bytes_make_a_request(self):
        connection = self.open()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head(len(BODY)) + BODY:
            connection.sendall(bytes([byte]))
        status, body, _ = self.receive(connection)
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 6)

    def test_body_in_two_parts_with_a_pause(self):
        connection = self.open()
        connection.sendall(head(len(BODY)) + BODY[:10])
        time.sleep(0.5)
        self.assertEqual(self.answer(connection, BODY[10:])[0], 200)

    def test_pipelined_requests_are_answered_in_order(self):
        bodies = [json.dumps({"prompt": "The sea", "max_tokens": count, "ignore_eos": True}).encode()
                  for count in (1, 2, 3, 4, 5)]
        connection = self.open()
        connection.sendall(b"".join(head(len(body), "/v1/completions") + body for body in bodies))
        rest, counts = b"", []
        for _ in bodies:
            status, body, rest = self.receive(connection, rest)
            self.assertEqual(status, 200)
            counts.append(json.loads(body)["usage"]["completion_tokens"])
        self.assertEqual(counts, [1, 2, 3, 4, 5])

    def test_keep_alive_after_an_error(self):
        connection = self.open()
        self.assertEqual(self.answer(connection, head(2) + b"[]")[0], 400)
        self.assertEqual(self.answer(connection, head(len(BODY)) + BODY)[0], 200)

    def test_stalled_headers_do_not_block_others(self):
        stalled = [self.open() for _ in range(40)]
        for connection in stalled:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        self.assertEqual(self.answer(self.open(), head(len(BODY)) + BODY)[0], 200)
        for connection in stalled:
            connection.sendall(b"a")
        self.assertEqual(self.answer(self.open(), head(len(BODY)) + BODY)[0], 200)

    def test_stalled_bodies_do_not_block_others(self):
        stalled = [self.open() for _ in range(40)]
        for connection in stalled:
            connection.sendall(head(1000) + b'{"messages"')
        self.assertEqual(self.answer(self.open(), head(len(BODY)) + BODY)[0], 200)

    def test_stalled_client_is_let_go(self):
        server = Server("--connections", "2", "--request-timeout", "5", "--drain-timeout", "1")
        self.addCleanup(server.stop)
        for _ in range(2):  # all threads
            self.open(server).sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        status, _, _ = self.answer(self.open(server), head(len(BODY)) + BODY)  # waits until one of them is given up
        self.assertEqual(status, 200)

    def test_garbage(self):
        for data in (b"\x00" * 200 + b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                     b"HELLO WORLD\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", bytes(range(256)) * 8 + b"\r\n\r\n",
                     b"\r\n\r\n\r\n\r\n"):
            with self.subTest(data=data[:20]):
                connection = self.open()
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = self.receive(connection)
                self.assertTrue(answer is None or 400 <= answer[0] < 600, answer)

    def test_body_that_is_not_json(self):
        for body in (b"", b"{", b"\xff\xfe\x00", b'{"messages": "\xc3\x28"}', b"[" * 20000, b"null", b'"text"', b"1e999",
                     b'{"a":' * 8000):
            with self.subTest(body=body[:20]):
                answer = self.answer(self.open(), head(len(body)) + body)
                self.assertEqual(answer[0], 400)
                self.assertTrue(json.loads(answer[1])["error"]["message"])

    def test_oversized_headers(self):
        self.refused(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 300_000 + b"\r\n\r\n", 400, 413, 414,
                     431)
        self.refused(b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 414)
        self.refused(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: 1\r\n" * 20_000 + b"\r\n", 400, 413, 431)

    def test_oversized_body_is_refused_by_its_length(self):
        self.refused(head(100_000_000_000) + b"{", 413, 400)
        answer = self.refused(head(70_000) + b" " * 70_000, 413)
        if answer is not None:
            self.assertIn("--max-body", json.loads(answer[1])["error"]["message"])

    def test_bad_content_length(self):
        for length in ("-1", "abc", "1e3", "99999999999999999999999", "0x10", "5, 6"):
            with self.subTest(length=length):
                self.refused(head(length) + BODY, 400, 413, 501)

    def test_two_lengths_or_length_and_chunks_are_not_mixed_up(self):
        # What follows a body must not be taken for a request of its own when the two sides disagree about its end.
        inner = b"GET /props HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for extra in ("Transfer-Encoding: chunked\r\n", f"Content-Length: {5 + len(inner)}\r\n"):
            with self.subTest(extra=extra):
                connection = self.open()
                connection.sendall(head(5, extra=extra) + b"0\r\n\r\n" + inner)
                connection.shutdown(socket.SHUT_WR)
                data = b""
                try:
                    while more := connection.recv(65536):
                        data += more
                except ConnectionResetError:
                    pass
                self.assertNotIn(b"model_path", data)

    def test_chunked_body(self):
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i:i + 7]), BODY[i:i + 7]) for i in range(0, len(BODY), 7))
        data = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Type: application/json\r\n\r\n" + chunks + b"0\r\n\r\n")
        self.assertEqual(self.answer(self.open(), data)[0], 200)
        self.refused(data.replace(b"\r\n\r\n", b"\r\n\r\nzz\r\n", 1), 400)

    def test_foreign_host_name_is_refused(self):
        data = (head(len(BODY)) + BODY).replace(b"Host: localhost", b"Host: evil.example")
        self.assertEqual(self.answer(self.open(), data)[0], 403)

    def generated_tokens(self):
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("bellhop_generated_tokens_total"))

    def start_stream(self):
        connection = self.open()
        connection.sendall(head(len(ENDLESS)) + ENDLESS)
        data = b""
        while b"data: " not in data:
            more = connection.recv(4096)
            self.assertTrue(more)
            data += more
        return connection

    def test_connection_closed_mid_stream_frees_the_slot(self):
        for _ in range(6):
            self.start_stream().close()

    def test_connection_reset_mid_stream_frees_the_slot(self):
        for _ in range(6):
            connection = self.start_stream()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    def test_client_gone_before_an_answer_frees_the_slot(self):
        body = ENDLESS.replace(b'"stream": true', b'"stream": false')
        before = self.generated_tokens()
        for _ in range(6):
            connection = self.open()
            connection.sendall(head(len(body)) + body)
            time.sleep(0.02)
            connection.close()
            self.server.wait_until_idle()
        self.assertLess(self.generated_tokens() - before, 6 * 900 // 2, "they went on for a client that had gone")

    def test_request_timeout_ends_a_call_that_makes_progress(self):
        server = Server("--request-timeout", "1", "--parallel", "1")
        self.addCleanup(server.stop)
        body = json.dumps({"prompt": "The sea", "max_tokens": 900, "ignore_eos": True, "n": 16}).encode()
        connection = self.open(server)
        status, text, _ = self.answer(connection, head(len(body), "/v1/completions") + body)
        self.assertEqual(status, 504, text[:300])
        server.wait_until_idle()

    def test_client_that_does_not_read_leaves_others_alone(self):
        for _ in range(4):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", self.server.port))
            self.addCleanup(connection.close)
            connection.sendall(head(len(ENDLESS)) + ENDLESS)
        self.assertEqual(self.answer(self.open(), head(len(BODY)) + BODY)[0], 200)
