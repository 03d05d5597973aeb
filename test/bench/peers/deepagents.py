"""usage: python deepagents.py STEPS memory|sqlite|none [FILE]

Runs the deepagents package with a scripted model: STEPS steps of one trivial
tool call each, then a last answer. Prints {"ms","calls","rss_mb"} as JSON.
"""
import json
import sys
import time
from contextlib import nullcontext

sys.path.pop(0)  # this folder: the file is called like the package

from deepagents import create_deep_agent  # noqa: E402
from langchain_core.language_models.chat_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage  # noqa: E402
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

count, saver = int(sys.argv[1]), sys.argv[2]
calls = 0


class Scripted(BaseChatModel):
    step: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.step += 1
        message = AIMessage("It is done.")
        if self.step <= count:
            call = {"id": f"call_{self.step}", "name": "look", "args": {"n": self.step}}
            message = AIMessage("I look.", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def look(n: int) -> str:
    """Looks."""
    global calls
    calls += 1
    return f"seen {n}"


def checkpointer():
    if saver == "memory":
        return nullcontext(InMemorySaver())
    if saver == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver.from_conn_string(sys.argv[3])
    return nullcontext(None)


with checkpointer() as kept:
    agent = create_deep_agent(model=Scripted(), tools=[look], system_prompt="You work.", checkpointer=kept)
    began = time.perf_counter()
    agent.invoke(
        {"messages": [{"role": "user", "content": "do it"}]},
        {"recursion_limit": 100_000, "configurable": {"thread_id": "bench"}},
    )
    ms = (time.perf_counter() - began) * 1000

with open("/proc/self/status") as f:
    rss = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:")) / 1024
print(json.dumps({"ms": ms, "calls": calls, "rss_mb": rss}))
