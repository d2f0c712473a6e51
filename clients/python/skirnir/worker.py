# SPDX-License-Identifier: MIT
"""The loop of a handler's process, as `command:` in skirnir.yaml names it: a
line of JSON comes for each message, and one is answered."""
import base64
import inspect
import json
import os
import select
import sys

from .database import SkirnirError


class Reject(Exception):
    """No further try would help: to the failed table at once."""


class Wait(Exception):
    """Something else has locked what is needed: again soon, at no cost."""


class Message:
    """The members of the line: id, name, type, attempt, source,
    partition_key, content_type, traceparent, tracestate, headers, and
    deduplication. body is text, or bytes where it is none."""

    def __init__(self, members):
        self.__dict__.update(members)
        if members.get("body_encoding") == "base64":
            self.body = base64.b64decode(members["body"])

    def json(self):
        """The body, parsed. One that is not JSON is rejected."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Reject(f"the body is not JSON: {error}") from error


NOT_RUN = ("the handler is `async def`, has a `yield`, or returned a future: "
           "its body need not have run; write a plain function that waits, with "
           "asyncio.run() in it for what is asynchronous")


def run(function, deduplicates=False, idle_s=60):
    """Calls function(message) for each message until there are no more. What
    it raises is the answer: Reject, Wait, or anything else for a retry. After
    that last kind, and after idle_s seconds without a message, the process is
    to end: it is replaced when it is needed, with a new connection.

    deduplicates: the function records each message, as inbox.handle() does;
    "own": in another database. What is printed goes to standard error."""
    if any(kind(function) for kind in (
            inspect.iscoroutinefunction, inspect.isgeneratorfunction,
            inspect.isasyncgenfunction)):
        raise SkirnirError(NOT_RUN)
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    ready = {"ready": True}
    if deduplicates:
        ready["deduplicates"] = deduplicates
    say(out, ready)
    while select.select([0], [], [], idle_s)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        message = Message(json.loads(line))
        answer, is_usable = call(function, message)
        say(out, {"delivery": message.delivery, **answer})
        if not is_usable:
            return


def call(function, message):
    """The answer, and whether this process may have the next message."""
    try:
        check_ran(function(message))
        return {"verdict": "accept"}, True
    except Reject as error:
        return failed("reject", error), True
    except Wait as error:
        return failed("wait", error), True
    except Exception as error:
        return failed("retry", error), False


def check_ran(result):
    """A handler whose body does not run has not handled the message."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or \
            inspect.isasyncgen(result) or hasattr(result, "add_done_callback"):
        raise SkirnirError(NOT_RUN)


def failed(verdict, error):
    text = str(error) or type(error).__name__
    text = text.encode("utf-8", "replace").decode()  # surrogates are no text
    return {"verdict": verdict, "error": text[:1000]}


def say(out, line):
    out.write(json.dumps(line, separators=(",", ":")) + "\n")
    out.flush()
