"""Pass the words of a training on to `serve.py`: `python ask.py SOCKET --train ...`."""

import json
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps(sys.argv[2:]).encode() + b"\n")
    said = connection.makefile("rb").read().decode()
lines = said.strip().splitlines()
ended = lines.pop() if lines and lines[-1].startswith("exit ") else "exit 1"
sys.stdout.write("\n".join(lines))
raise SystemExit(int(ended.removeprefix("exit ")))
