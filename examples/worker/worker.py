"""A handler as a process: skirnir-handler(7) says what it reads and writes.
Each order gets a letter that is named by the message's id, so that a message
that comes twice makes one letter.

    handlers:
        order.placed: {command: [python3, worker.py], timeout: 10}
"""
import json
import pathlib
import sys

pathlib.Path("letters").mkdir(exist_ok=True)
print('{"ready":true}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    answer = {"delivery": message["delivery"], "verdict": "accept"}
    try:
        customer = json.loads(message["body"])["customer"]
        pathlib.Path(f"letters/{message['id']}.txt").write_text(
            f"Dear {customer}, thank you for your order.\n")
    except (ValueError, KeyError, TypeError) as problem:
        answer |= {"verdict": "reject", "error": str(problem)}
    except OSError as problem:
        answer |= {"verdict": "retry", "error": str(problem)}
    print(json.dumps(answer), flush=True)
