# SPDX-License-Identifier: MIT
"""Does what the body of a message says; see clients/vectors/README.md."""
import json
import sys

from skirnir import worker


def do(message):
    wanted = message.json()
    why = wanted.get("why", "")
    if wanted["do"] == "reject":
        raise worker.Reject(why)
    if wanted["do"] == "wait":
        raise worker.Wait(why)
    if wanted["do"] == "fail":
        raise RuntimeError(why)
    if wanted["do"] == "print":
        print("nothing that a consumer wants to know")


worker.run(do, deduplicates=json.loads(sys.argv[1]))
