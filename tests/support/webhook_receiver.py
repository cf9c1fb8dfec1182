"""A receiver of webhooks as its author would write it, with the library `standardwebhooks`.

    webhook_receiver.py SECRET...

The first line of its output is the port. For each call it prints a line of JSON: what it was told, under which secrets the
call is genuine, and which of several forgeries of it the library would have taken for genuine as well.
"""
import json
import sys
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

secrets = sys.argv[1:]


def is_genuine(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
        return True
    except WebhookVerificationError:
        return False


def forgeries(body, headers):
    sent_at = int(headers["webhook-timestamp"])
    changed = lambda name, value: (body, {**headers, name: value})
    yield "body", (body.replace(b'"attempt":1', b'"attempt":9') + b" ", headers)
    yield "no body", (b"", headers)
    yield "id", changed("webhook-id", headers["webhook-id"] + "x")
    yield "time", changed("webhook-timestamp", str(sent_at + 1))
    # A genuine call that somebody kept and sends again later, or that was signed by a clock that is wrong.
    for secret in secrets:
        for offset in [-600, 600]:
            at = datetime.fromtimestamp(sent_at + offset, timezone.utc)
            signature = Webhook(secret).sign(headers["webhook-id"], at, body.decode())
            signed = {"webhook-timestamp": str(sent_at + offset), "webhook-signature": signature}
            yield f"signed {offset}", (body, {**headers, **signed})
    yield "signature", changed("webhook-signature", headers["webhook-signature"].swapcase())
    yield "version", changed("webhook-signature", headers["webhook-signature"].replace("v1,", "v2,"))
    yield "unsigned", changed("webhook-signature", "")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = {
            "id": headers["webhook-id"],
            "genuine": [is_genuine(secret, body, headers) for secret in secrets],
            "forged": [name for name, call in forgeries(body, headers) if any(is_genuine(s, *call) for s in secrets)],
            "body": json.loads(body),
        }
        print(json.dumps(told), flush=True)
        self.send_response(200 if any(told["genuine"]) else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
