"""A Deep Agent that plans, edits and runs in a machine of skete, and is undone.

    pip install "$(ls dist/skete-*.whl)[deepagents]" langchain-openai    # `make dist` writes the wheel
    export SKETE_URL=http://127.0.0.1:7733 SKETE_KEY=… OPENAI_API_KEY=… MODEL=gpt-5.1
    python deep_agent.py "Write fizzbuzz.py, and a test of it."

OPENAI_BASE_URL asks another server that speaks the same API.
"""

import os
import sys

from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_openai import ChatOpenAI

from skete.deepagents import SketeSandbox


def main(task: str) -> None:
    with SketeSandbox.create() as backend:
        history = backend.sandbox.history
        before = history.save("before the agent")["n"]

        agent = create_deep_agent(model=ChatOpenAI(model=os.environ["MODEL"]), backend=backend, middleware=[TodoListMiddleware()])
        state = agent.invoke({"messages": [("user", task)]})

        for todo in state.get("todos", []):
            print(f"[{todo['status']}] {todo['content']}")
        print(state["messages"][-1].text)
        print("sandbox:", backend.id)

        for revision in history.revisions():  # the newest first
            if revision["n"] == before:
                break
            print(f"{revision['who']}: {revision['title']}")
        for file in history.diff(before)["files"]:
            print(f"{file['action']} {file['path']}")

        history.restore(before)
        print("undone:", len(history.diff(before)["files"]), "files differ")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Write fizzbuzz.py, and a test of it.")
