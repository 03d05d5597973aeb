"""A Jupyter kernel: the program that the kernel.json of each language starts.

    kernel.py LANGUAGE -f CONNECTION-FILE

Python's is ipykernel's own, which shows more (display.py). Those of JavaScript and bash
have a child that runs the code, Node with child.cjs or a shell: it gets code by one pipe and
tells by another what came of it; what it writes is the output.
"""

import codecs
import json
import os
import queue
import selectors
import shlex
import signal
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

from limits import OUTPUT_MAX, RESULT_MAX, beyond, left_out, size_of

sys.path.remove(HERE)  # else code finds our modules


class Child:
    """A process that runs code, and what it writes. What it writes while no execution
    reads is dropped, so that it never waits for that.

    arrange(code, events) returns its arguments, whether it reads code as its stdin, and
    what it is told first; the numbers are those of the descriptors in the child."""

    def __init__(self, arrange):
        code, self.code = os.pipe()
        events, told = os.pipe()
        (out, out_to), (err, err_to) = os.pipe(), os.pipe()
        argv, stdin, first = arrange(code, told)
        self.process = subprocess.Popen(
            argv,
            stdin=code if stdin else subprocess.DEVNULL,
            stdout=out_to,
            stderr=err_to,
            pass_fds=(told,) if stdin else (code, told),
            start_new_session=True,  # so that signals reach what it starts, and not us
        )
        for fd in (code, told, out_to, err_to):
            os.close(fd)
        self.queue = queue.Queue()  # of the execution that reads
        self.decoders, self.line = {}, ""
        self.selector = selectors.DefaultSelector()
        for fd, name in ((out, "stdout"), (err, "stderr"), (events, "event")):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, name)
            self.decoders[name] = codecs.getincrementaldecoder("utf-8")("replace")
        threading.Thread(target=self.read, daemon=True).start()
        self.send(first)
        while self.queue.get()[0] not in ("event", "end"):  # shells greet
            pass

    def read(self):
        """Passes on what comes. What was written before an event is passed on before it."""
        while True:
            ready = {key.data: key.fd for key, _ in self.selector.select()}
            events = self.take(ready.pop("event")) if "event" in ready else None
            for key in list(self.selector.get_map().values()):
                if key.data != "event" and (events is not None or key.data in ready):
                    self.pass_on(key)
            if events is None:
                continue
            *lines, self.line = (self.line + self.decoders["event"].decode(events)).split("\0")
            for line in lines:
                self.tell("event", line)
            if not events:
                self.tell("end", None)
                return

    def pass_on(self, key):
        while (data := self.take(key.fd)) is not None:
            if not data:
                self.selector.unregister(key.fd)
                os.close(key.fd)
                return
            if text := self.decoders[key.data].decode(data):
                self.tell(key.data, text)

    @staticmethod
    def take(fd):
        """What can be read now; None = nothing, empty = it has ended."""
        try:
            return os.read(fd, 1 << 16)
        except BlockingIOError:
            return None

    def tell(self, kind, value):
        to = self.queue
        while to is not None and to is self.queue:
            try:
                return to.put((kind, value), timeout=0.2)
            except queue.Full:
                pass  # the execution may have ended meanwhile

    def send(self, data):
        at = 0
        while at < len(data):
            at += os.write(self.code, data[at:])

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def end(self):
        self.signal(signal.SIGKILL)
        return self.process.wait()


class ChildKernel(Kernel):
    """A kernel whose child runs the code."""

    implementation, implementation_version, banner = "interpreter", "1", ""
    child = None

    def arrange(self, code, events):
        """See Child."""
        raise NotImplementedError

    def frame(self, code):
        """The code as the child reads it."""
        raise NotImplementedError

    def ended(self, event):
        """The error that an event of the child tells, as its three parts; None = none."""
        raise NotImplementedError

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        if self.child is None:
            self.child = Child(self.arrange)
        self.silent = silent
        child, self.left = self.child, OUTPUT_MAX
        child.queue = queue.Queue(maxsize=64)  # so that a child that writes fast waits
        try:
            child.send(self.frame(code))
            error = self.follow(child)
        except BrokenPipeError:
            error = self.lost()
        finally:
            child.queue = None
        if error is None:
            return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        name, value, trace = error
        said = {"ename": name, "evalue": value, "traceback": trace}
        self.send_response(self.iopub_socket, "error", said)
        return {"status": "error", "execution_count": self.execution_count, **said}

    def follow(self, child):
        """Sends what comes until the code has ended, and returns its error."""
        while True:
            kind, value = child.queue.get()
            if kind == "end":
                return self.lost()
            if kind != "event":
                self.write(kind, value)
                continue
            event = json.loads(value)
            if "result" in event:
                self.show(event["result"])
            elif "display" in event:
                self.show(event["display"], "display_data")
            else:
                return self.ended(event)

    def lost(self):
        """The child is gone: the next execution has another one."""
        code, self.child = self.child.end(), None
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return "ProcessEnded", f"the process ended with {how}; the next one knows nothing of this one", []

    def write(self, stream, text):
        if self.left <= 0:
            return
        part = text[: self.left]
        self.left -= len(part)
        self.send_response(self.iopub_socket, "stream", {"name": stream, "text": part})
        if self.left <= 0:
            self.send_response(self.iopub_socket, "stream", {"name": "stderr", "text": "\n" + beyond(OUTPUT_MAX)})

    def show(self, bundle, kind="execute_result"):
        if self.silent:
            return
        kept = {}
        for name, value in bundle.items():
            if (size := size_of(value)) > RESULT_MAX:
                self.write("stderr", left_out(name, size, RESULT_MAX))
            else:
                kept[name] = value
        self.send_response(self.iopub_socket, kind, {"data": kept, "metadata": {}, "execution_count": self.execution_count})

    async def interrupt_request(self, stream, ident, parent):
        """Is called where the code runs not, and reaches it while it runs."""
        if self.child is not None:
            self.child.signal(signal.SIGINT)
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def do_shutdown(self, restart):
        if self.child is not None:
            self.child.end()
        return {"status": "ok", "restart": restart}


class JavaScript(ChildKernel):
    language_info = {"name": "javascript", "mimetype": "text/javascript", "file_extension": ".js"}
    types = ()

    def arrange(self, code, events):
        return ["node", "--no-warnings", os.path.join(HERE, "child.cjs"), str(code), str(events), *self.types], False, b""

    def frame(self, code):
        return json.dumps(code).encode() + b"\n"

    def ended(self, event):
        e = event["error"]
        return e and (e["name"], e["value"], e["traceback"])


class TypeScript(JavaScript):
    language_info = {"name": "typescript", "mimetype": "text/typescript", "file_extension": ".ts"}
    types = ("types",)


class Bash(ChildKernel):
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}

    def arrange(self, code, events):
        """An interactive one ends nothing but the code by a SIGINT, and says by its prompt
        that it waits for more."""
        prompt = f"""set +H; PS1= PS2= PROMPT_COMMAND='printf "{{\\"status\\":%d}}\\0" $? >&{events}'; readonly PROMPT_COMMAND\n"""
        return ["bash", "--norc", "--noprofile", "--noediting", "-i"], True, prompt.encode()

    def frame(self, code):
        return f"eval {shlex.quote(code)} </dev/null\n".encode()

    def ended(self, event):
        status = event["status"]
        return ("ExitStatus", str(status), [f"exit status {status}\n"]) if status else None


def main():
    language, *argv = sys.argv[1:]
    kind = {"javascript": JavaScript, "typescript": TypeScript, "bash": Bash}.get(language)
    if kind:
        IPKernelApp.launch_instance(argv, kernel_class=kind)
        return
    app = IPKernelApp.instance()
    app.config.InteractiveShell.colors = "nocolor"
    app.initialize(argv)
    sys.path.insert(0, HERE)
    import display

    sys.path.remove(HERE)
    display.install(app.shell)
    app.start()


if __name__ == "__main__":
    main()
