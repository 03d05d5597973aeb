"""Does one task with the deepagents package, in the current directory.

Reads {"task", "model", "url", "key_env"} as JSON from stdin, and writes
{"state", "reason", "said", "steps", "input_tokens", "output_tokens"}. What ends it
after a time is the program that started it.
"""
import json
import os
import sys

from deepagents import create_deep_agent
from deepagents.backends import LocalShellBackend
from langchain_openai import ChatOpenAI

RECURSION_MAX = 1000  # far beyond what the time allows

asked = json.load(sys.stdin)
model = ChatOpenAI(
    model=asked["model"],
    base_url=asked["url"],
    api_key=os.environ.get(asked["key_env"] or "", "none"),
    use_responses_api=False,
)
# The commands that the model writes do not see the environment with its key.
commands = LocalShellBackend(root_dir=os.getcwd(), env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"})
agent = create_deep_agent(model=model, backend=commands)

seen = set()
answer = {"state": "succeeded", "reason": "done", "said": "", "steps": 0, "input_tokens": 0, "output_tokens": 0}
try:
    for state in agent.stream({"messages": [("user", asked["task"])]}, {"recursion_limit": RECURSION_MAX}, stream_mode="values"):
        last = state["messages"][-1]
        if last.type != "ai" or last.id in seen:  # middleware shows a message again
            continue
        seen.add(last.id)
        used = last.usage_metadata or {}
        answer["steps"] += 1
        answer["input_tokens"] += used.get("input_tokens", 0)
        answer["output_tokens"] += used.get("output_tokens", 0)
        answer["said"] = last.text
except Exception as e:  # whatever it is, it is how the peer ended
    answer.update(state="failed", reason=type(e).__name__, said=str(e))
print(json.dumps(answer))
