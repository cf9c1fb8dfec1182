"""A mail server that keeps nothing and tells everything: a line of JSON for each e-mail that it took.

    mail_server.py '{"tls": "none" | "starttls" | "implicit", "auth": false | true | PASSWORD, "delay": 0.0}'

The first line of its output is the port. Recipients decide how it answers: `refused-for-good@…` and `refused-once@…` are
refused, the latter only the first time; `unanswered-once@…` gets no answer the first time, and `late-once@…` one after four seconds; to everybody else it is friendly.
"""
import asyncio
import email
import email.policy
import json
import os
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

asked = {"tls": "none", "auth": False, "delay": 0.0, **json.loads(sys.argv[1])}
here = os.path.dirname(os.path.abspath(__file__))
refused = set()


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused-for-good@"):
            return "550 5.1.1 there is nobody of that name"
        if address.startswith("refused-once@") and address not in refused:
            refused.add(address)
            return "451 4.3.0 come back in a moment"
        if address.startswith("unanswered-once@") and address not in refused:
            refused.add(address)
            print(json.dumps({"unanswered": address}), flush=True)
            await asyncio.Event().wait()
        if address.startswith("late-once@") and address not in refused:
            refused.add(address)
            await asyncio.sleep(4)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 good"

    async def handle_DATA(self, server, session, envelope):
        await asyncio.sleep(asked["delay"])
        head = envelope.content.partition(b"\r\n\r\n")[0].decode("utf-8", "surrogateescape")
        # A line that begins with a blank goes on with the header before it.
        names = [line.partition(":")[0] for line in head.split("\r\n") if line[:1] not in (" ", "\t")]
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        part = lambda kind: (found := mail.get_body((kind,))) and found.get_content()
        told = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "headers": names,
            "messageId": mail["message-id"],
            "subject": mail["subject"],
            "toHeader": mail["to"],
            "date": mail["date"],
            "text": part("plain"),
            "html": part("html"),
            "encrypted": server.transport.get_extra_info("sslcontext") is not None,
            "authenticated": session.authenticated,
        }
        print(json.dumps(told), flush=True)
        return "250 2.0.0 taken"


def authenticate(server, session, envelope, mechanism, data):
    # `handled` would mean that we have answered ourselves.
    password = "sword/fish" if asked["auth"] is True else asked["auth"]
    return AuthResult(success=(data.login, data.password) == (b"me", password.encode()), handled=False)


async def main():
    context = None
    if asked["tls"] != "none":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(f"{here}/tls/server.pem", f"{here}/tls/server.key")

    def session():
        return SMTP(
            Handler(),
            enable_SMTPUTF8=True,
            authenticator=authenticate if asked["auth"] else None,
            auth_required=asked["auth"],
            auth_require_tls=False,
            tls_context=context if asked["tls"] == "starttls" else None,
            require_starttls=asked["tls"] == "starttls",
        )

    loop = asyncio.get_running_loop()
    implicit = context if asked["tls"] == "implicit" else None
    server = await loop.create_server(session, "127.0.0.1", 0, ssl=implicit)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
