"""The types of the API, as dictionaries. Made by generate.py of the server's OpenAPI document: do not change it.

A key that is NotRequired is missing where it would be empty. A later server may send more keys.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing_extensions import NotRequired



class Agent(TypedDict):
    definition: NotRequired[Any]
    description: NotRequired[str]
    error: NotRequired[str]
    model: NotRequired[str]
    name: str
    subagents: NotRequired[list[str]]
    tools: NotRequired[list[str]]


class AgentList(TypedDict):
    items: list[Agent]


class AgentProblem(TypedDict):
    # with its place in the file
    text: str
    warning: NotRequired[bool]


class AgentValidated(TypedDict):
    agent: NotRequired[Agent]
    # there is nothing but warnings
    ok: bool
    problems: NotRequired[list[AgentProblem]]


class AnswerWorkflow(TypedDict):
    choice: str
    node: str
    text: NotRequired[str]


class Applied(TypedDict):
    # there are more than are shown
    cut: NotRequired[bool]
    files: list[PathResult]
    # of the files as they are now
    revision: Revision


class ApplyPlan(TypedDict):
    plan: str


class Approval(TypedDict):
    agent: str
    # approve, edit, reject, respond, dismiss
    allowed: list[str]
    args: Any
    # of the arguments; a decision that carries it is about these alone
    args_hash: str
    # question: args has the question and perhaps options, respond is the answer; plan: args has the plan and its
    # steps; form: the call runs, and the program that it calls asks: args has from, message, schema of the answer,
    # and perhaps a warning; missing: whether the call may be done
    ask: NotRequired[Literal["question", "plan", "form"]]
    asked_at: str
    call: str
    # then it is a reject
    expires_at: NotRequired[str]
    reason: NotRequired[str]
    run: str
    seq: int
    # the run's own, or a sub-agent's beneath it
    thread: str
    tool: str


class ApprovalList(TypedDict):
    items: list[Approval]


class Attaching(TypedDict):
    # in order again
    done: int
    total: int


class AuditBad(TypedDict):
    file: NotRequired[str]
    line: NotRequired[int]
    # of the record; of missing ones, of the first
    n: int
    why: str


class AuditList(TypedDict):
    items: list[AuditRecord]


class AuditRecord(TypedDict):
    # large texts are cut; never values of secrets
    detail: NotRequired[dict[str, str]]
    # from 1, without gaps
    n: int
    node: NotRequired[str]
    # the sandbox, the thread, …
    on: NotRequired[str]
    result: NotRequired[str]
    tenant: NotRequired[str]
    time: str
    # api.create-sandbox, tool.started, network.refused, …
    what: str
    # the name of a key or a login, a run, skete
    who: str


class AuditReport(TypedDict):
    # what is wrong, the first first; at most 20
    bad: list[AuditBad]
    # number of the oldest record that is kept; 0 = there is none
    first: int
    # of the last record: kept elsewhere, it shows later that nothing before it was changed
    hash: str
    last: int
    records: int
    # number of the last record that was removed since it was old
    removed: NotRequired[int]


class Budget(TypedDict):
    cost_usd: NotRequired[float]
    steps: NotRequired[int]
    tokens: NotRequired[int]
    # time, waiting for people not counted
    wall_ms: NotRequired[int]


class CallDetail(TypedDict):
    approval: NotRequired[TranscriptApproval]
    # a summary for people, on one line
    args: str
    # that the model wrote
    arguments: Any
    # of the whole output
    bytes: int
    # of a failure
    code: NotRequired[str]
    ended_at: NotRequired[str]
    # the event with its result
    ended_seq: NotRequired[int]
    # of a command
    exit: NotRequired[int]
    # where the agent finds the whole output
    file: NotRequired[str]
    # the beginning of the output
    head: NotRequired[str]
    id: str
    machine: NotRequired[str]
    # kinds of the blocks of the result
    output_types: NotRequired[list[str]]
    # the arguments that ran, when they were changed
    ran: NotRequired[Any]
    started_at: NotRequired[str]
    # the event with which it began
    started_seq: NotRequired[int]
    # waiting: for a person; answered: by one, in place of the tool
    status: Literal["pending", "waiting", "running", "done", "failed", "rejected", "answered"]
    step: int
    # of the sub-agent that it started
    thread: NotRequired[str]
    took_ms: NotRequired[int]
    tool: str


class CancelRun(TypedDict):
    reason: NotRequired[str]


class ChangePlan(TypedDict):
    conflicts: list[PathConflict]
    # there are more than are shown
    cut: NotRequired[bool]
    do: Literal["undo", "redo", "restore", "revert"]
    files: list[PathChange]
    # what to apply
    id: str
    # what differs from the revision and stays as it is: what git keeps of repositories, unless a path in there is
    # restored
    left: NotRequired[list[PathLeft]]
    # the revision that it goes to, or takes back
    n: int
    # how many paths it would touch
    total: int


class ChangeSecret(TypedDict):
    grants: NotRequired[list[SecretGrant]]
    # send this one, which is kept
    version: NotRequired[int]


class ChangeSkill(TypedDict):
    # none = all
    agents: NotRequired[list[str]]
    # this one is trusted no longer, at once
    distrust: NotRequired[str]
    # this version, by its whole hash, is trusted: its allowed_tools are approved beforehand
    trust: NotRequired[str]
    # new runs get this one, which is kept; its first 8 characters are enough
    version: NotRequired[str]


class Checked(TypedDict):
    # that events name
    blobs: int
    events: int
    histories: int
    problems: list[StoreProblem]
    # of histories
    revisions: int
    tenants: int
    threads: int
    # there may be more problems than these
    truncated: NotRequired[bool]


class ChmodFile(TypedDict):
    mode: int
    path: str
    # the exact bytes, when they are not UTF-8; they count instead of path
    path_bytes: NotRequired[str]
    recursive: NotRequired[bool]
    user: NotRequired[str]


class CommandResult(TypedDict):
    # the key was known: nothing was started, this is what the first call did
    existed: NotRequired[bool]
    # as a shell reports it: 0..255; 128+n for signal n
    exit_code: int
    key: str
    # the program is not there (127) or cannot be run (126); reason says why
    not_started: NotRequired[bool]
    # timeout, out of memory, killed; or why it was not started
    reason: NotRequired[str]
    signal: NotRequired[int]
    stderr: str
    stderr_bytes: int
    stderr_encoding: Literal["utf-8", "base64"]
    stderr_truncated: NotRequired[bool]
    # the beginning, as far as asked for
    stdout: str
    # that were written in all
    stdout_bytes: int
    # base64 where the bytes are not UTF-8
    stdout_encoding: Literal["utf-8", "base64"]
    # the command wrote more than is here
    stdout_truncated: NotRequired[bool]


class CompactRun(TypedDict):
    # what the summary must keep above all
    focus: NotRequired[str]


class Comparison(TypedDict):
    report: Any


class CopyFile(TypedDict):
    destination: str
    # the exact bytes, when they are not UTF-8; they count instead of destination
    destination_bytes: NotRequired[str]
    overwrite: NotRequired[bool]
    source: str
    # the exact bytes, when they are not UTF-8; they count instead of source
    source_bytes: NotRequired[str]
    user: NotRequired[str]


class CreateKey(TypedDict):
    name: str
    # read, write, admin, runs:read, runs:write; default read and write
    scopes: NotRequired[list[str]]
    # default: the caller's; another one needs scope admin
    tenant: NotRequired[str]


class CreatePreview(TypedDict):
    # of a public link, for people
    name: NotRequired[str]
    # where to arrive; empty = /
    path: NotRequired[str]
    # 8001 is the sandbox's own history and undo
    port: int
    public: NotRequired[bool]
    # of a public link; 0 = 7 days
    ttl_ms: NotRequired[int]


CreateSandbox = TypedDict('CreateSandbox', {
    'cpus': "NotRequired[float]",
    'disk_iops': "NotRequired[int]",
    'disk_mb': "NotRequired[int]",
    'disk_mbps': "NotRequired[int]",
    'egress': "NotRequired[NetworkPolicy]",
    'env': "NotRequired[dict[str, str]]",
    'ephemeral': "NotRequired[bool]",
    'from': "NotRequired[str]",
    'idle_timeout_ms': "NotRequired[int]",
    'language': "NotRequired[str]",
    'memory_mb': "NotRequired[int]",
    'metadata': "NotRequired[dict[str, str]]",
    'models': "NotRequired[ModelGrant]",
    'name': "NotRequired[str]",
    'network': "NotRequired[Literal[\"none\", \"default\", \"open\"]]",
    'no_start': "NotRequired[bool]",
    'no_wake': "NotRequired[bool]",
    'persist': "NotRequired[bool]",
    'pids_max': "NotRequired[int]",
    'provider': "NotRequired[str]",
    'require': "NotRequired[Literal[\"microvm\", \"microvm-emulated\", \"user-kernel\", \"container\", \"none\"]]",
    'root': "NotRequired[bool]",
    'services': "NotRequired[list[ServiceSpec]]",
    'template': "NotRequired[str]",
    'ttl_ms': "NotRequired[int]",
    'workdir': "NotRequired[str]",
})


class CreateSchedule(TypedDict):
    # minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly
    cron: NotRequired[str]
    # an interval of a minute to 366 days, from now on
    every_ms: NotRequired[int]
    # a to z, 0 to 9 and single hyphens; of no other schedule of the tenant
    name: str
    run: StartRun
    # of cron, by its IANA name, as Europe/Berlin; default UTC
    time_zone: NotRequired[str]


class CreateShare(TypedDict):
    # how long it can be read there; default 7 days, at most 90
    ttl_ms: NotRequired[int]


class CreateSnapshot(TypedDict):
    # its files alone, without its memory
    disk_only: NotRequired[bool]
    # for people; need not be unique
    name: NotRequired[str]


class CreatedKey(TypedDict):
    created_at: str
    id: str
    name: str
    revoked_at: NotRequired[str]
    scopes: list[str]
    # e2b_ and hex; shown once, kept hashed
    secret: str
    tenant: str


class Death(TypedDict):
    # killed, out of memory, exited, lost (it was gone when the server looked)
    reason: str
    time: str


class Decide(TypedDict):
    # allows the same from now on in this thread
    always: NotRequired[bool]
    # with edit: the arguments that run
    args: NotRequired[Any]
    # of the arguments that were shown; refused if the call has others
    args_hash: NotRequired[str]
    call: str
    # dismiss: of a form, which is neither answered nor refused
    decision: Literal["approve", "edit", "reject", "respond", "dismiss"]
    # with reject: why; with respond: the result that the model sees; of a form, what was filled in, a JSON object, or
    # the value of its only field
    text: NotRequired[str]
    # default the run's own
    thread: NotRequired[str]


class DecideList(TypedDict):
    decisions: list[Decide]


class Decided(TypedDict):
    call: str
    ok: bool
    # conflict: it was decided already, or it expired
    problem: NotRequired[Problem]
    thread: NotRequired[str]


class DecidedList(TypedDict):
    items: list[Decided]


Diff = TypedDict('Diff', {
    'cut': "NotRequired[bool]",
    'files': "list[PathChange]",
    'from': "int",
    'to': "int",
})


class DiffHunk(TypedDict):
    after: int
    after_lines: int
    before: int
    before_lines: int
    lines: list[DiffLine]


class DiffLine(TypedDict):
    kind: Literal["same", "remove", "add"]
    # the file ends here without a newline
    no_newline: NotRequired[bool]
    # without the newline; bytes that are not UTF-8 are replaced
    text: str


class Erased(TypedDict):
    # of workspaces, of sandboxes that were gone too
    histories: int
    # that were there, with their workspaces
    sandboxes: int
    snapshots: int
    tenant: str
    # conversations, not counting those of sub-agents
    threads: int


class Event(TypedDict):
    # of the sandbox or the run; a workspace, a network and a call to a model have that of their sandbox
    id: NotRequired[str]
    # a call of a program in the sandbox that is over; of many a second some are told, each with what all have used
    models: NotRequired[ModelCall]
    # what was decided; alike in a row it is told once, and of many a second some
    network: NotRequired[NetworkDecision]
    # events before this one are gone: list again; the rest is empty
    resync: NotRequired[bool]
    # without text, result and todos
    run: NotRequired[Run]
    sandbox: NotRequired[Sandbox]
    # grows, with gaps, over restarts too
    seq: int
    time: str
    # what it is about and the state that this is in: sandbox.running, run.succeeded; of a workspace what happened to
    # it: workspace.changed, or workspace.restored by an undo, a redo, a restore or a revert; of a network what was
    # decided: network.allowed or network.refused; of a call to a model: models.used
    type: NotRequired[str]
    # the revision that is new
    workspace: NotRequired[Revision]


class Exit(TypedDict):
    # 0..255; 128+n for signal n
    code: int
    # timeout, out of memory, killed
    reason: NotRequired[str]
    signal: NotRequired[int]


class FieldError(TypedDict):
    # where it is; in a definition of a workflow LINE:COLUMN and its key, such as 7:5 nodes[2].agent
    location: NotRequired[str]
    message: str
    value: NotRequired[Any]


class File(TypedDict):
    gid: int
    # permission bits as a number
    mode: int
    modified_at: str
    name: str
    path: str
    # the exact name, when it is not UTF-8
    path_bytes: NotRequired[str]
    sha256: NotRequired[str]
    size: int
    # of a symlink
    target: NotRequired[str]
    # the exact target, when it is not UTF-8
    target_bytes: NotRequired[str]
    type: Literal["file", "directory", "symlink", "other"]
    uid: int


class FileEvent(TypedDict):
    directory: NotRequired[bool]
    lost_from: NotRequired[int]
    lost_to: NotRequired[int]
    path: NotRequired[str]
    # the exact name, when it is not UTF-8
    path_bytes: NotRequired[str]
    seq: int
    type: str


class FilePage(TypedDict):
    items: list[File]
    next_page_token: NotRequired[str]


class FileWritten(TypedDict):
    gid: int
    # permission bits as a number
    mode: int
    modified_at: str
    name: str
    path: str
    # the exact name, when it is not UTF-8
    path_bytes: NotRequired[str]
    sha256: NotRequired[str]
    size: int
    # of a symlink
    target: NotRequired[str]
    # the exact target, when it is not UTF-8
    target_bytes: NotRequired[str]
    type: Literal["file", "directory", "symlink", "other"]
    uid: int


class FollowMessage(TypedDict):
    # of the topic events
    domain: NotRequired[Event]
    # the topic is over
    end: NotRequired[StreamEnd]
    event: NotRequired[RunEvent]
    gap: NotRequired[LiveGap]
    heartbeat: NotRequired[str]
    live: NotRequired[Live]
    pong: NotRequired[int]
    # the topic is over, without one the connection
    problem: NotRequired[Problem]
    # of the event; alone, with the topic events, all up to it was told or is not wanted: go on from the next
    seq: NotRequired[int]
    # of the event or the live news, when it is a sub-agent's
    thread: NotRequired[str]
    # missing: of the whole connection
    topic: NotRequired[str]


FollowRequest = TypedDict('FollowRequest', {
    'from': "NotRequired[int]",
    'live': "NotRequired[bool]",
    'ping': "NotRequired[int]",
    'subscribe': "NotRequired[str]",
    'threads': "NotRequired[dict[str, int]]",
    'unsubscribe': "NotRequired[str]",
})


class Fork(TypedDict):
    # the last event that was taken over
    seq: int
    thread: str


class ForkRun(TypedDict):
    # the last event that is taken over
    at: int
    budget: NotRequired[Budget]
    # leave the fork's own sandbox as it is when its run is over
    keep: NotRequired[bool]
    model: NotRequired[str]
    # what to do there; default to go on
    task: NotRequired[str]
    title: NotRequired[str]


class ForkSandbox(TypedDict):
    # default 1
    count: NotRequired[int]
    # copy the files alone and boot
    disk_only: NotRequired[bool]
    # the original's is not taken over
    env: NotRequired[dict[str, str]]
    # expiry removes them, also where the original persists
    ephemeral: NotRequired[bool]
    # default the original's
    idle_timeout_ms: NotRequired[int]
    metadata: NotRequired[dict[str, str]]
    # with a count above 1: NAME-1, NAME-2, …
    name: NotRequired[str]
    # default as the original
    persist: NotRequired[bool]
    # default the original's
    ttl_ms: NotRequired[int]


class Forked(TypedDict):
    items: list[Sandbox]


class GlobResult(TypedDict):
    items: list[File]
    truncated: bool


class GrepMatch(TypedDict):
    after: NotRequired[list[str]]
    before: NotRequired[list[str]]
    column: int
    line: int
    path: str
    # the exact name, when it is not UTF-8
    path_bytes: NotRequired[str]
    text: str


class GrepResult(TypedDict):
    files_searched: int
    files_skipped: int
    items: list[GrepMatch]
    truncated: bool


class Image(TypedDict):
    # base64; at most 5 MB each
    data: str


class Info(TypedDict):
    # while the server, which has just started, attaches the sandboxes that it found; a call waits for the one that it
    # needs
    attaching: NotRequired[Attaching]
    # what auto gives now
    default_provider: str
    limits: Limits
    # strongest first
    providers: list[ProviderInfo]
    # what your tenant has of it
    used: Used
    version: str


class InputFile(TypedDict):
    # in base64
    content: str
    # where it is, beneath the workspace
    path: str


InstallSkill = TypedDict('InstallSkill', {
    'agents': "NotRequired[list[str]]",
    'archive': "str",
    'dry_run': "NotRequired[bool]",
    'from': "NotRequired[str]",
    'new': "NotRequired[bool]",
    'path': "NotRequired[str]",
    'trust': "NotRequired[bool]",
})


class KeptHistories(TypedDict):
    items: list[KeptHistory]


class KeptHistory(TypedDict):
    # of the server's disk; they count in the tenant's quota
    bytes: int
    # the id that it had
    sandbox: str
    # when something was written to it last
    written: str


class Key(TypedDict):
    created_at: str
    id: str
    name: str
    revoked_at: NotRequired[str]
    scopes: list[str]
    tenant: str


class KeyList(TypedDict):
    items: list[Key]


class Limits(TypedDict):
    cpus_max: float
    disk_mb_max: int
    memory_mb_max: int
    sandboxes: int
    # of all machines that run; 0 = no limit
    tenant_cpus: float
    # promised to all sandboxes, and really held by them, by snapshots and histories; 0 = no limit
    tenant_disk_mb: int
    # of all machines that run; 0 = no limit
    tenant_memory_mb: int
    ttl_ms_max: int


class Live(TypedDict):
    # the thread's last event when it was sent
    after: int
    # the text is the end of all that was sent of it so far, and takes its place; for a client that begins to follow
    # in the middle
    again: NotRequired[bool]
    # of an output
    call: NotRequired[str]
    # which call of the answer, from 0
    index: NotRequired[int]
    # reset: the answer that was streaming is void
    kind: Literal["text", "reasoning", "tool_call", "tool_args", "output", "reset"]
    # of the tool
    name: NotRequired[str]
    run: str
    text: NotRequired[str]
    thread: str


class LiveGap(TypedDict):
    lost: int


class Login(TypedDict):
    # how the server knows
    by: Literal["key", "login", "socket"]
    # of the caller, for people
    name: NotRequired[str]
    scopes: list[str]
    tenant: str
    user: str


class MCPServer(TypedDict):
    # that may use it: names or globs; empty: all
    agents: list[str]
    # of the last failure
    error: NotRequired[str]
    # since it last worked
    failures: int
    # in the configuration
    name: str
    # open now: one for each thread
    sessions: int
    # when it came into the state
    since: NotRequired[str]
    # unused: not since the server began; broken: it does not start, has ended, or does not answer as it should;
    # refused: it does not let us in
    state: Literal["unused", "working", "broken", "refused"]
    # for whom it was used; without it no one was
    tenant: NotRequired[str]
    # that it had when it last worked
    tools: int
    # stdio: a program in the sandbox of each thread
    transport: Literal["stdio", "http", "sse"]


class MCPServerList(TypedDict):
    items: list[MCPServer]


class MakeDir(TypedDict):
    mode: NotRequired[int]
    parents: NotRequired[bool]
    path: str
    # the exact bytes, when they are not UTF-8; they count instead of path
    path_bytes: NotRequired[str]
    user: NotRequired[str]


class MakeRevision(TypedDict):
    label: NotRequired[str]


class Metrics(TypedDict):
    cpu_used_us: int
    cpus: float
    disk_total_bytes: int
    disk_used_bytes: int
    mem_total_bytes: int
    mem_used_bytes: int
    processes: int
    processes_max: int
    time: str
    uptime_ms: int


class Model(TypedDict):
    # used where nothing else is said
    default: NotRequired[bool]
    # the size of its window was not stated
    guessed: NotRequired[bool]
    # what the vendor calls it
    id: str
    name: str
    # configuration, environment, local server, plugin; example: a script that plays the example, used where it is
    # named alone
    source: str
    # key: its key is there, the vendor was not asked
    state: Literal["ready", "key", "no_key", "down"]
    url: NotRequired[str]
    # who serves it: anthropic, openai, google, compat, script
    vendor: str
    window_tokens: NotRequired[int]


class ModelCall(TypedDict):
    cost_usd: float
    # until the answer began
    first_ms: int
    # the vendor did not tell all of it
    guessed: NotRequired[bool]
    model: str
    # of the sandbox's calls that were told of, from 1
    n: int
    # of the vendor's answer; 0 = there was none
    status: int
    # of its beginning
    time: str
    tokens_in: int
    tokens_out: int
    took_ms: int
    # by all of its calls then
    used: ModelsUsed


class ModelGrant(TypedDict):
    # of all calls; default no bound
    cost_usd: NotRequired[float]
    # by name, as agents use them; a program that asks for the model default gets the first
    models: list[str]
    # calls; default no bound
    per_minute: NotRequired[int]
    # in and out, of all calls; default no bound
    tokens: NotRequired[int]


class ModelList(TypedDict):
    items: list[Model]


class ModelsUsed(TypedDict):
    calls: int
    cost_usd: float
    tokens: int


class MoveFile(TypedDict):
    destination: str
    # the exact bytes, when they are not UTF-8; they count instead of destination
    destination_bytes: NotRequired[str]
    overwrite: NotRequired[bool]
    source: str
    # the exact bytes, when they are not UTF-8; they count instead of source
    source_bytes: NotRequired[str]
    user: NotRequired[str]


MoveHistory = TypedDict('MoveHistory', {
    'from': "str",
    'n': "NotRequired[int]",
})


class NetworkDecision(TypedDict):
    allowed: bool
    host: str
    # without one it is about a connection
    method: NotRequired[str]
    # its number, from 1
    n: int
    path: NotRequired[str]
    port: int
    # that decided
    rule: NotRequired[str]
    # the names of those that were sent with it, separated by commas
    secrets: NotRequired[str]
    # of the last one
    time: str
    # how often it was made in a row
    times: int
    # it was refused
    why: NotRequired[str]


class NetworkLog(TypedDict):
    items: list[NetworkDecision]


class NetworkPolicy(TypedDict):
    allow: NotRequired[list[NetworkRule]]
    deny: NotRequired[list[NetworkRule]]
    # to begin with: nothing, reading where packages and public repositories are, or everything to public addresses;
    # default none
    profile: NotRequired[Literal["none", "default", "open"]]
    # what the profile default allows now; it is not read
    usual: NotRequired[list[NetworkRule]]


class NetworkRule(TypedDict):
    # read: GET, HEAD, OPTIONS, and what git fetches with
    access: NotRequired[Literal["read"]]
    # a name, *.name for all beneath it, * for all names, or an address
    host: str
    # default all
    methods: NotRequired[list[str]]
    # * is a part of a path, ** any number of parts; default all
    paths: NotRequired[list[str]]
    # connections are passed on as they are, whatever they carry
    pinned: NotRequired[bool]
    # default 80 and 443 where it allows, all where it denies
    ports: NotRequired[list[int]]


class OutlineAgent(TypedDict):
    # subagent_type of the arguments that ran
    agent: str
    # that started it
    call: str
    cost_usd: NotRequired[float]
    # of tool.completed, or in the background of the input
    ended_seq: NotRequired[int]
    # of tool.started, the first one
    started_seq: int
    state: Literal["pending", "running", "interrupted", "ended", "succeeded", "failed", "cancelled", "timed_out"]
    steps: NotRequired[int]
    thread: str


class OutlineCall(TypedDict):
    # what a person was asked last
    ask: NotRequired[Literal["approval", "question", "plan", "form"]]
    # of approval.asked, the last one
    asked_seq: NotRequired[int]
    call: str
    decision: NotRequired[Literal["approve", "edit", "reject", "respond", "dismiss"]]
    # of tool.completed
    ended_seq: NotRequired[int]
    # of a command
    exit: NotRequired[int]
    # of tool.started, the last one
    started_seq: NotRequired[int]
    state: Literal["pending", "waiting", "running", "done", "failed", "rejected", "answered"]
    # the beginning of a summary of its arguments, for people; no rule tells how it is made
    title: NotRequired[str]
    # whole milliseconds, cut off
    took_ms: NotRequired[int]
    tool: str


OutlineInput = TypedDict('OutlineInput', {
    'from': "str",
    'name': "NotRequired[str]",
    'seq': "int",
    'text': "NotRequired[str]",
})


class OutlineMark(TypedDict):
    at: str
    kind: str
    seq: int


class OutlineStep(TypedDict):
    # of model.completed
    at: str
    # at most 32
    calls: NotRequired[list[OutlineCall]]
    # when there are more than are listed
    calls_total: NotRequired[int]
    cost_usd: float
    # attempts of the model call that failed
    failures: NotRequired[int]
    # what entered the conversation before it; at most 8
    inputs: NotRequired[list[OutlineInput]]
    # of its main work; text: it has no calls
    kind: Literal["agent", "edit", "command", "ask", "tool", "plan", "read", "text"]
    # no longer part of the conversation
    rewound: NotRequired[bool]
    # of model.completed
    seq: int
    # from 1
    step: int
    # the beginning of the answer
    text: NotRequired[str]
    # input, output and both of the cache
    tokens: int
    # of the model's answer, whole milliseconds, cut off
    took_ms: int


OutputEvent = TypedDict('OutputEvent', {
    'data': "NotRequired[str]",
    'from': "NotRequired[int]",
    'offset': "NotRequired[int]",
    'process': "NotRequired[Process]",
    'stream': "NotRequired[str]",
    'to': "NotRequired[int]",
})


class PathChange(TypedDict):
    action: Literal["add", "remove", "change", "attributes"]
    after: NotRequired[TreeEntry]
    before: NotRequired[TreeEntry]
    # it is no text: there are no hunks
    binary: NotRequired[bool]
    hunks: NotRequired[list[DiffHunk]]
    # its hunks would be too much
    large: NotRequired[bool]
    # relative to the workspace
    path: str
    # the exact path, when it is not UTF-8
    path_bytes: NotRequired[str]


class PathConflict(TypedDict):
    # both sides can be written into it
    markers: bool
    path: str
    # the exact path, when it is not UTF-8
    path_bytes: NotRequired[str]
    why: str


class PathLeft(TypedDict):
    path: str
    # the exact path, when it is not UTF-8
    path_bytes: NotRequired[str]
    why: str


class PathResult(TypedDict):
    action: Literal["add", "remove", "change", "attributes"]
    after: NotRequired[TreeEntry]
    before: NotRequired[TreeEntry]
    # it is no text: there are no hunks
    binary: NotRequired[bool]
    hunks: NotRequired[list[DiffHunk]]
    # its hunks would be too much
    large: NotRequired[bool]
    # relative to the workspace
    path: str
    # the exact path, when it is not UTF-8
    path_bytes: NotRequired[str]
    # kept: it holds what the history does not have, or it was changed meanwhile
    result: Literal["done", "kept"]


class PathRevision(TypedDict):
    # who changed the files; outside = not known
    actor: NotRequired[str]
    bytes: int
    # the tool call whose result it is
    call: NotRequired[str]
    entry: NotRequired[TreeEntry]
    files: int
    label: NotRequired[str]
    # counts from 1; a number is never used again
    n: int
    # hash of the whole tree: equal roots are equal trees
    root: str
    run: NotRequired[str]
    # local: the loss of power; durable: the loss of the sandbox too
    state: Literal["local", "durable"]
    step: NotRequired[int]
    thread: NotRequired[str]
    time: str
    # in a few words, of what it is the result
    title: str
    # how many files were changing while they were read
    torn: NotRequired[int]
    # the revision that an undo, a redo or a restore went back to, or that a revert took back
    undoes: NotRequired[int]
    # in a few words, who made it
    who: str


class PathRevisions(TypedDict):
    # there are more than are shown
    cut: NotRequired[bool]
    items: list[PathRevision]


class PlanChange(TypedDict):
    # of an undo: this tool call
    call: NotRequired[str]
    # of a revert: what to do where there is a conflict
    choices: NotRequired[list[RevertChoice]]
    do: Literal["undo", "redo", "restore", "revert"]
    # the revision to restore, or to take back
    n: NotRequired[int]
    # of a restore: this path alone, and what is beneath it
    path: NotRequired[str]
    # the exact bytes, when they are not UTF-8; they count instead of path
    path_bytes: NotRequired[str]
    # of an undo: this run
    run: NotRequired[str]
    # of an undo: the last change (default), or all of the last step, run, turn of the conversation or tool call, or
    # of the named one
    scope: NotRequired[Literal["last", "step", "run", "turn", "call"]]
    # of an undo: this step of the run
    step: NotRequired[int]
    thread: NotRequired[str]


class Plugin(TypedDict):
    description: NotRequired[str]
    # of its files
    hash: NotRequired[str]
    hooks: list[PluginHook]
    # by which models are asked for
    models: list[str]
    # of its folder
    name: str
    # why it cannot be used
    problems: list[str]
    # one for each tenant that it works for
    processes: list[PluginProcess]
    # what it has sent where, of what is granted to it
    secrets: list[PluginSecret]
    # unusable: see problems; idle: no process, the next call starts one
    state: Literal["unusable", "broken", "starting", "running", "idle"]
    version: NotRequired[str]


class PluginHook(TypedDict):
    event: str
    # what happens when it cannot be asked
    on_failure: Literal["deny", "ask", "skip"]
    # names or globs; empty: all
    tools: list[str]


class PluginList(TypedDict):
    items: list[Plugin]


class PluginProcess(TypedDict):
    # under way
    calls: int
    # of the last failure
    error: NotRequired[str]
    # since a call was answered
    failures: int
    # before which it is not started again
    retry_at: NotRequired[str]
    # of the operator's tenant
    sandbox: NotRequired[str]
    started_at: NotRequired[str]
    # since the server began
    starts: int
    state: Literal["broken", "starting", "running", "idle"]
    tenant: str
    used_at: NotRequired[str]


class PluginSecret(TypedDict):
    hosts: list[str]
    name: str


class Pool(TypedDict):
    kinds: list[PoolKind]
    # the host is short of memory: the pool gets smaller, and nothing is made
    memory_short: bool


class PoolKind(TypedDict):
    # to boot the last one that was booted
    boot_ms: NotRequired[float]
    # sandboxes that got a warm machine, since the server's start
    claims: int
    cpus: float
    disk_mb: int
    ending: int
    # to make the last one
    make_ms: NotRequired[float]
    making: int
    # kept at most, when there is demand
    max: int
    memory_mb: int
    # sandboxes that had to boot
    misses: int
    # they have one, whatever its policy
    network: NotRequired[bool]
    pids_max: int
    provider: str
    # how further ones are made: booted, or from a snapshot of the pool's own
    refill: Literal["boot", "snapshot"]
    # why there is no snapshot
    refill_note: NotRequired[str]
    # machines that were stale, old or broken
    replaced: int
    # to make the last one that came from a snapshot
    restore_ms: NotRequired[float]
    root: NotRequired[bool]
    # kept always
    size: int
    # that it takes on the disk
    snapshot_bytes: NotRequired[int]
    # wanted now
    target: int
    template: str
    warm: int


class Port(TypedDict):
    address: str
    port: int


class PortEvent(TypedDict):
    port: Port
    type: Literal["opened", "closed"]


class PortList(TypedDict):
    items: list[Port]


PrepareTemplates = TypedDict('PrepareTemplates', {
    'all': "NotRequired[bool]",
    'for': "NotRequired[CreateSandbox]",
    'names': "NotRequired[list[str]]",
})


class Preview(TypedDict):
    address: str
    created_at: NotRequired[str]
    created_by: NotRequired[str]
    expires_at: str
    id: NotRequired[str]
    listens: NotRequired[bool]
    name: NotRequired[str]
    port: int
    public: bool
    sandbox: str
    url: str


class PreviewKey(TypedDict):
    # Ed25519, base64
    public_key: str


class PreviewList(TypedDict):
    items: list[Preview]


Problem = TypedDict('Problem', {
    'class': "str",
    'code': "NotRequired[str]",
    'detail': "NotRequired[str]",
    'errors': "NotRequired[list[FieldError]]",
    'exit_code': "NotRequired[int]",
    'hint': "NotRequired[str]",
    'status': "int",
    'title': "str",
    'type': "NotRequired[str]",
})


class Process(TypedDict):
    argv: list[str]
    background: NotRequired[bool]
    cwd: str
    ended_at: NotRequired[str]
    # the key was known; nothing was started
    existed: NotRequired[bool]
    exit: NotRequired[Exit]
    key: str
    pid: int
    started_at: str
    # lost: how it ended cannot be known; no status is invented
    state: Literal["running", "exited", "lost"]
    stderr: Spool
    stdin_acked: int
    stdout: Spool
    terminal: NotRequired[bool]
    user: str


class ProcessPage(TypedDict):
    items: list[Process]
    next_page_token: NotRequired[str]


class ProviderInfo(TypedDict):
    # of what not all can do: pause; snapshot and fork, with the memory; network
    can: list[str]
    error: NotRequired[str]
    hint: NotRequired[str]
    isolation: str
    name: str
    notes: NotRequired[list[str]]
    ok: bool


class PullTemplate(TypedDict):
    # instead of a password, as docker login keeps it
    identity_token: NotRequired[str]
    # plain HTTP may be spoken with the registry
    insecure_http: NotRequired[bool]
    # of the template; default the last part of the image's name
    name: NotRequired[str]
    password: NotRequired[str]
    # default this machine's, such as linux/amd64
    platform: NotRequired[str]
    # such as debian:bookworm or registry.example/owner/name@sha256:…
    reference: str
    # the same
    registry_token: NotRequired[str]
    username: NotRequired[str]


class PutSecret(TypedDict):
    # in place of those that it has; default they stay
    grants: NotRequired[list[SecretGrant]]
    # how long it lives from now on; default a week, -1 = for ever
    ttl_ms: NotRequired[int]
    value: str


class PutWorkflow(TypedDict):
    # what the text is called in messages, and the workflow unless it has a name
    file: NotRequired[str]
    # YAML or JSON
    text: str


class Removed(TypedDict):
    removed: int


class ReplayRun(TypedDict):
    # leave the replay's sandbox as it is; else it is removed ten minutes after its last use
    keep: NotRequired[bool]


class ResumeRun(TypedDict):
    # is added to the present budget
    add: NotRequired[Budget]
    budget: NotRequired[Budget]


class RevertChoice(TypedDict):
    # keep what is now, take what was before, or write both with markers
    choice: Literal["keep", "take", "markers"]
    path: str
    # the exact bytes, when they are not UTF-8; they count instead of path
    path_bytes: NotRequired[str]


class Revision(TypedDict):
    # who changed the files; outside = not known
    actor: NotRequired[str]
    bytes: int
    # the tool call whose result it is
    call: NotRequired[str]
    files: int
    label: NotRequired[str]
    # counts from 1; a number is never used again
    n: int
    # hash of the whole tree: equal roots are equal trees
    root: str
    run: NotRequired[str]
    # local: the loss of power; durable: the loss of the sandbox too
    state: Literal["local", "durable"]
    step: NotRequired[int]
    thread: NotRequired[str]
    time: str
    # in a few words, of what it is the result
    title: str
    # how many files were changing while they were read
    torn: NotRequired[int]
    # the revision that an undo, a redo or a restore went back to, or that a revert took back
    undoes: NotRequired[int]
    # in a few words, who made it
    who: str


RevisionChanges = TypedDict('RevisionChanges', {
    'actor': "NotRequired[str]",
    'bytes': "int",
    'call': "NotRequired[str]",
    'cut': "NotRequired[bool]",
    'files_changed': "list[PathChange]",
    'from': "int",
    'label': "NotRequired[str]",
    'n': "int",
    'root': "str",
    'run': "NotRequired[str]",
    'state': "Literal[\"local\", \"durable\"]",
    'step': "NotRequired[int]",
    'thread': "NotRequired[str]",
    'time': "str",
    'title': "str",
    'torn': "NotRequired[int]",
    'undoes': "NotRequired[int]",
    'who': "str",
})


class RevisionPage(TypedDict):
    current: int
    items: list[Revision]
    next_page_token: NotRequired[str]
    redo: int
    undo: int
    # what was changed and is in no revision yet; the first to be undone
    unsaved: NotRequired[Unsaved]
    # why the files could not be looked at; current is where they were last
    unseen: NotRequired[str]


class RewindRun(TypedDict):
    files: NotRequired[bool]
    # the last event that stays part of the conversation
    to: int


class Rewound(TypedDict):
    agent: str
    # sub-agents that go on beneath it; not in lists
    background: NotRequired[int]
    budget: NotRequired[Budget]
    # who asked for it
    by: NotRequired[str]
    # what has to hold before it succeeds
    check: NotRequired[RunCheck]
    # how often that was looked at
    checks: NotRequired[int]
    cost_usd: float
    created_at: str
    ended_at: NotRequired[str]
    files: NotRequired[list[PathChange]]
    # of its thread's events
    first_seq: int
    fork: NotRequired[Fork]
    id: str
    # its own sandbox is left as it is when it is over
    keep: NotRequired[bool]
    labels: NotRequired[dict[str, str]]
    last_seq: int
    model: str
    # only tools that read can be used: no plan has been accepted yet
    planning: NotRequired[bool]
    # a code: done, steps, tokens, cost, wall, loop, model, machine, cancelled, output, format, hook, refusal, check,
    # log
    reason: NotRequired[str]
    # the run that this one plays again
    replay: NotRequired[str]
    # structured output, when a schema asked for it
    result: NotRequired[Any]
    sandbox: NotRequired[str]
    # interrupted: it waits for a person
    state: Literal["pending", "running", "interrupted", "succeeded", "failed", "cancelled", "timed_out"]
    steps: int
    # steps of sub-agents that are over
    subagent_steps: NotRequired[int]
    # the last words, or what went wrong
    text: NotRequired[str]
    thread: str
    title: NotRequired[str]
    todos: NotRequired[list[Todo]]
    usage: Usage
    # approvals that are open in the run and beneath it
    waiting: NotRequired[int]


class Rlimit(TypedDict):
    hard: int
    # nofile, fsize, core, cpu, as, data, stack, nproc, memlock
    name: str
    soft: int


class Run(TypedDict):
    agent: str
    # sub-agents that go on beneath it; not in lists
    background: NotRequired[int]
    budget: NotRequired[Budget]
    # who asked for it
    by: NotRequired[str]
    # what has to hold before it succeeds
    check: NotRequired[RunCheck]
    # how often that was looked at
    checks: NotRequired[int]
    cost_usd: float
    created_at: str
    ended_at: NotRequired[str]
    # of its thread's events
    first_seq: int
    fork: NotRequired[Fork]
    id: str
    # its own sandbox is left as it is when it is over
    keep: NotRequired[bool]
    labels: NotRequired[dict[str, str]]
    last_seq: int
    model: str
    # only tools that read can be used: no plan has been accepted yet
    planning: NotRequired[bool]
    # a code: done, steps, tokens, cost, wall, loop, model, machine, cancelled, output, format, hook, refusal, check,
    # log
    reason: NotRequired[str]
    # the run that this one plays again
    replay: NotRequired[str]
    # structured output, when a schema asked for it
    result: NotRequired[Any]
    sandbox: NotRequired[str]
    # interrupted: it waits for a person
    state: Literal["pending", "running", "interrupted", "succeeded", "failed", "cancelled", "timed_out"]
    steps: int
    # steps of sub-agents that are over
    subagent_steps: NotRequired[int]
    # the last words, or what went wrong
    text: NotRequired[str]
    thread: str
    title: NotRequired[str]
    todos: NotRequired[list[Todo]]
    usage: Usage
    # approvals that are open in the run and beneath it
    waiting: NotRequired[int]


class RunCheck(TypedDict):
    # runs in the run's sandbox and has to exit with 0
    command: NotRequired[str]
    # what a critic, which is the run's model, has to find true of the work
    rubric: NotRequired[str]


class RunCommand(TypedDict):
    argv: NotRequired[list[str]]
    # a program in the sandbox's language, or in language
    code: NotRequired[str]
    # a line for bash -c (sh where there is no bash)
    command: NotRequired[str]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    # the same key never runs twice; a repeated call answers what the first one did. 1..128 of A-Za-z0-9._:-
    key: NotRequired[str]
    language: NotRequired[str]
    # of each stream in the answer; 0 = 1 MiB. What is beyond is kept in the sandbox, see the route output
    output_bytes_max: NotRequired[int]
    # all input, as text
    stdin: NotRequired[str]
    # all input, as base64
    stdin_base64: NotRequired[str]
    # then the command is ended, with the reason timeout; 0 = 10 minutes
    timeout_ms: NotRequired[int]
    # root needs a sandbox that grants it
    user: NotRequired[str]


class RunEvent(TypedDict):
    at: str
    data: Any
    kind: str
    run: NotRequired[str]
    # 1, 2, 3, … in its thread
    seq: int
    v: int


class RunOutline(TypedDict):
    # sub-agents that the run itself started
    agents: NotRequired[list[OutlineAgent]]
    # pass as before for the steps before these; missing: there are none
    before: NotRequired[int]
    cost_usd: float
    ended_at: NotRequired[str]
    first_seq: int
    # that no step has taken up yet; at most 8
    inputs: NotRequired[list[OutlineInput]]
    # the last event that is in it
    last_seq: int
    # other events that have a place in the whole
    marks: NotRequired[list[OutlineMark]]
    # a code, as in a run
    reason: NotRequired[str]
    run: str
    started_at: NotRequired[str]
    state: Literal["pending", "running", "interrupted", "succeeded", "failed", "cancelled", "timed_out"]
    # the newest, oldest first; at most 20000
    steps: list[OutlineStep]
    thread: str
    todos: NotRequired[list[Todo]]
    # steps of the run
    total: int
    usage: Usage
    # calls of the run itself that wait for a person
    waiting: NotRequired[list[str]]


class RunPage(TypedDict):
    items: list[Run]
    next_page_token: NotRequired[str]


class RunStreamItem(TypedDict):
    end: NotRequired[StreamEnd]
    event: NotRequired[RunEvent]
    gap: NotRequired[LiveGap]
    live: NotRequired[Live]


class RunTool(TypedDict):
    # the tool as this agent has it: some tools and secrets are for some agents alone
    agent: NotRequired[str]
    # the arguments, an object that fits the tool's schema; default {}
    args: NotRequired[Any]
    # in which a tool works that has no sandbox of its own, and from which files are taken, by its id, the beginning
    # of it, or its name
    sandbox: NotRequired[str]


Sandbox = TypedDict('Sandbox', {
    'after_run': "NotRequired[Literal[\"stop\", \"remove\"]]",
    'after_run_ms': "NotRequired[int]",
    'boot_ms': "NotRequired[float]",
    'cpus': "float",
    'created_at': "str",
    'deaths': "NotRequired[list[Death]]",
    'disk_mb': "int",
    'ended_at': "NotRequired[str]",
    'expires_at': "NotRequired[str]",
    'from': "NotRequired[str]",
    'id': "str",
    'idle_timeout_ms': "NotRequired[int]",
    'isolation': "str",
    'language': "NotRequired[str]",
    'last_used_at': "NotRequired[str]",
    'memory_mb': "int",
    'metadata': "NotRequired[dict[str, str]]",
    'models': "NotRequired[ModelGrant]",
    'name': "NotRequired[str]",
    'network': "str",
    'notes': "NotRequired[list[str]]",
    'persist': "bool",
    'pids_max': "int",
    'provider': "str",
    'reason': "NotRequired[str]",
    'root': "bool",
    'run': "NotRequired[str]",
    'started_at': "NotRequired[str]",
    'state': "Literal[\"creating\", \"running\", \"paused\", \"stopped\", \"failed\", \"destroyed\"]",
    'template': "str",
    'waiting': "NotRequired[str]",
    'workdir': "str",
})


class SandboxEvent(TypedDict):
    # events before this one are gone: list the sandboxes again; sandbox is empty
    resync: NotRequired[bool]
    sandbox: Sandbox
    seq: int
    time: str


class SandboxModels(TypedDict):
    cost_usd: NotRequired[float]
    # empty = none
    models: list[str]
    per_minute: NotRequired[int]
    tokens: NotRequired[int]
    used: ModelsUsed


class SandboxPage(TypedDict):
    items: list[Sandbox]
    next_page_token: NotRequired[str]


class Schedule(TypedDict):
    # who made it
    by: NotRequired[str]
    created_at: str
    cron: NotRequired[str]
    every_ms: NotRequired[int]
    id: str
    # what became of the last time that was not left out
    last: NotRequired[ScheduleRun]
    # times at which no server ran; the latest of them is made up for, and does not count
    missed: NotRequired[int]
    name: str
    # when it is next due; not there while it is paused
    next_at: NotRequired[str]
    paused: NotRequired[bool]
    # what each run is asked for
    run: StartRun
    # times at which a run of it was under way
    skipped: NotRequired[int]
    time_zone: NotRequired[str]


class SchedulePage(TypedDict):
    items: list[Schedule]
    next_page_token: NotRequired[str]


class ScheduleRun(TypedDict):
    due_at: str
    # why no run could be started
    error: NotRequired[str]
    run: NotRequired[str]
    # of the run, as it is now; not there when the run is gone
    state: NotRequired[str]
    thread: NotRequired[str]


class Secret(TypedDict):
    created_at: str
    # then it is sent no more; without it it lives for ever
    expires_at: NotRequired[str]
    grants: list[SecretGrant]
    name: str
    # why it is not sent
    problem: NotRequired[str]
    updated_at: str
    # the one that is sent
    version: int
    # those that are kept, the oldest first
    versions: list[int]


SecretGrant = TypedDict('SecretGrant', {
    'agents': "NotRequired[list[str]]",
    'as': "Literal[\"bearer\", \"basic\", \"header\", \"query\", \"aws\"]",
    'env': "NotRequired[str]",
    'host': "str",
    'key': "NotRequired[str]",
    'methods': "NotRequired[list[str]]",
    'oauth': "NotRequired[bool]",
    'paths': "NotRequired[list[str]]",
    'ports': "NotRequired[list[int]]",
    'sandboxes': "NotRequired[list[str]]",
})


class SecretList(TypedDict):
    items: list[Secret]


class SendInput(TypedDict):
    # that belong to the message, for models that see images
    images: NotRequired[list[Image]]
    text: str


class Sent(TypedDict):
    # a new run was started on the thread
    new: NotRequired[bool]
    # that takes it: another one than was asked when that one was over
    run: str
    # of the input in the thread's log
    seq: NotRequired[int]


class Service(TypedDict):
    # either argv
    argv: NotRequired[list[str]]
    # or a line for bash -c (sh where there is no bash)
    command: NotRequired[str]
    env: NotRequired[dict[str, str]]
    # the dev server that it is: vite
    known_as: NotRequired[str]
    last_exit: NotRequired[Exit]
    last_exit_at: NotRequired[str]
    # of all its processes together: memory (bytes; more ends it), pids, cpu_weight (100 is everybody's); of each one:
    # nofile, fsize, core, cpu, as, data, stack, nproc, memlock. What a machine does not keep is its reason while it
    # is ready
    limits: NotRequired[dict[str, int]]
    # kept of each run; default 4 MiB
    log_bytes_max: NotRequired[int]
    log_size: int
    # the oldest offset that may still be there
    log_start: int
    # a-z 0-9 -, from a letter to a letter or digit
    name: str
    pid: NotRequired[int]
    # that it serves; for people and previews
    ports: NotRequired[list[int]]
    # of its present or last run
    process_key: NotRequired[str]
    # ready when this port answers 200..399
    ready_http: NotRequired[int]
    # ready when a line of its log matches this regular expression (RE2)
    ready_log: NotRequired[str]
    # of ready_http; default /
    ready_path: NotRequired[str]
    # ready when this port accepts a connection
    ready_tcp: NotRequired[int]
    # then it is unready; default 60000
    ready_timeout_ms: NotRequired[int]
    # of the state, for people
    reason: NotRequired[str]
    # default always
    restart: NotRequired[Literal["always", "on-failure", "never"]]
    restarts: int
    # it is in this state
    since: str
    # who declared it: a call, skete.yaml of the workspace, the sandbox's spec
    source: Literal["call", "file", "spec"]
    state: Literal["stopped", "starting", "ready", "unready", "backoff", "crash-loop", "failed"]
    # between TERM and KILL; default 5000
    stop_timeout_ms: NotRequired[int]
    # root needs a sandbox that grants it
    user: NotRequired[str]
    # it shall run
    wanted: bool
    # absolute, or beneath the sandbox's
    workdir: NotRequired[str]


class ServiceList(TypedDict):
    items: list[Service]


class ServiceLogEvent(TypedDict):
    # base64
    data: NotRequired[str]
    # set: the bytes from offset to here were dropped
    gap_to: NotRequired[int]
    # of the first byte of data, or of the gap
    offset: int


class ServiceSpec(TypedDict):
    # either argv
    argv: NotRequired[list[str]]
    # or a line for bash -c (sh where there is no bash)
    command: NotRequired[str]
    env: NotRequired[dict[str, str]]
    # of all its processes together: memory (bytes; more ends it), pids, cpu_weight (100 is everybody's); of each one:
    # nofile, fsize, core, cpu, as, data, stack, nproc, memlock. What a machine does not keep is its reason while it
    # is ready
    limits: NotRequired[dict[str, int]]
    # kept of each run; default 4 MiB
    log_bytes_max: NotRequired[int]
    # a-z 0-9 -, from a letter to a letter or digit
    name: str
    # that it serves; for people and previews
    ports: NotRequired[list[int]]
    # ready when this port answers 200..399
    ready_http: NotRequired[int]
    # ready when a line of its log matches this regular expression (RE2)
    ready_log: NotRequired[str]
    # of ready_http; default /
    ready_path: NotRequired[str]
    # ready when this port accepts a connection
    ready_tcp: NotRequired[int]
    # then it is unready; default 60000
    ready_timeout_ms: NotRequired[int]
    # default always
    restart: NotRequired[Literal["always", "on-failure", "never"]]
    # between TERM and KILL; default 5000
    stop_timeout_ms: NotRequired[int]
    # root needs a sandbox that grants it
    user: NotRequired[str]
    # absolute, or beneath the sandbox's
    workdir: NotRequired[str]


class ServicesLoaded(TypedDict):
    # that it names
    declared: list[str]
    # there is such a file
    found: bool
    # that it does not name any more
    removed: list[str]
    # those that it names, when the call waited for them
    services: NotRequired[list[Service]]


class SetSandboxModels(TypedDict):
    # of all calls, those before now too; default no bound
    cost_usd: NotRequired[float]
    # by name, as agents use them; a program that asks for the model default gets the first; empty = it may use none
    models: list[str]
    # calls; default no bound
    per_minute: NotRequired[int]
    # in and out, of all calls, those before now too; default no bound
    tokens: NotRequired[int]


class Share(TypedDict):
    # the id of the key that made it
    by: str
    # what the key was called then
    by_name: NotRequired[str]
    created_at: str
    expires_at: str
    # shr_…
    id: str
    path: NotRequired[str]
    run: str


class ShareList(TypedDict):
    items: list[Share]


class SignalProcess(TypedDict):
    leader_only: NotRequired[bool]
    signal: int


class Skill(TypedDict):
    # that have it, by name; none = all agents of the tenant
    agents: list[str]
    # that its author wants approved beforehand; of a version that is not trusted they approve nothing
    allowed_tools: NotRequired[list[str]]
    # what it needs, in words
    compatibility: NotRequired[str]
    created_at: str
    description: str
    files: NotRequired[list[str]]
    instructions: NotRequired[str]
    license: NotRequired[str]
    metadata: NotRequired[dict[str, str]]
    name: str
    # that it is as well: its tool.yaml
    tool: NotRequired[SkillTool]
    # the version that new runs get is: its allowed_tools are approved beforehand
    trusted: bool
    updated_at: str
    # that new runs get
    version: str
    # those that are kept, the oldest first
    versions: list[SkillVersion]
    # advice of the standard that it does not follow
    warnings: NotRequired[list[str]]


class SkillList(TypedDict):
    items: list[Skill]


class SkillTool(TypedDict):
    description: str
    # JSON Schema of the arguments
    input: NotRequired[Any]
    name: str
    # JSON Schema of what it returns; none = any text
    output: NotRequired[Any]


SkillVersion = TypedDict('SkillVersion', {
    'bytes': "int",
    'description': "str",
    'files': "int",
    'from': "NotRequired[str]",
    'installed_at': "str",
    'trusted_at': "NotRequired[str]",
    'trusted_by': "NotRequired[str]",
    'version': "str",
})


class SlashCommand(TypedDict):
    # that works on it where the caller names none
    agent: NotRequired[str]
    description: NotRequired[str]
    # what is wrong with its file
    error: NotRequired[str]
    # the same
    model: NotRequired[str]
    name: str


class SlashCommandList(TypedDict):
    items: list[SlashCommand]


class Snapshot(TypedDict):
    # that it takes on the server's disk
    bytes: int
    cpus: float
    created_at: str
    disk_mb: int
    id: str
    isolation: str
    # with its memory; else its files alone
    memory: bool
    memory_mb: int
    name: NotRequired[str]
    provider: str
    # that it was taken of
    sandbox: str
    template: str


class SnapshotList(TypedDict):
    items: list[Snapshot]


class Spool(TypedDict):
    eof: bool
    head_end: int
    size: int
    tail_start: int


class StartProcess(TypedDict):
    argv: NotRequired[list[str]]
    background: NotRequired[bool]
    # a program in the sandbox's language, or in language
    code: NotRequired[str]
    # a line for bash -c (sh where there is no bash)
    command: NotRequired[str]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    # the same key never runs twice; 1..128 of A-Za-z0-9._:-
    key: NotRequired[str]
    language: NotRequired[str]
    rlimits: NotRequired[list[Rlimit]]
    # kept of each stream; default 17 MiB
    spool_bytes_max: NotRequired[int]
    # keep stdin open
    stdin: NotRequired[bool]
    # set: runs in a terminal
    terminal: NotRequired[TerminalSize]
    timeout_ms: NotRequired[int]
    # root needs a sandbox that grants it
    user: NotRequired[str]
    wait: NotRequired[bool]


class StartRun(TypedDict):
    # name of a definition; default default
    agent: NotRequired[str]
    budget: NotRequired[Budget]
    # what has to hold before the run succeeds
    check: NotRequired[RunCheck]
    # a whole definition in place of a name: an object with the keys of an agent file
    definition: NotRequired[Any]
    # that belong to the task, for models that see images
    images: NotRequired[list[Image]]
    # the agent itself works in its sandbox too, for at most five minutes if nothing else is said; its own sandbox is
    # removed when the run is over, unless keep or after_run say otherwise
    in_sandbox: NotRequired[bool]
    # leave the run's own sandbox as it is when the run is over; else what the agent's after_run says: it is stopped
    # ten minutes after its last use
    keep: NotRequired[bool]
    labels: NotRequired[dict[str, str]]
    # default the definition's, then the server's choice
    model: NotRequired[str]
    # only tools that read can be used until a person has accepted the agent's plan
    plan: NotRequired[bool]
    # an existing sandbox to work in, by its id, the beginning of it, or its name; default one of the thread's own
    sandbox: NotRequired[str]
    # JSON Schema of the result; default text
    schema: NotRequired[Any]
    # of the thread's own sandbox: the keys of CreateSandbox
    spec: NotRequired[dict[str, Any]]
    # what to do, in words; /NAME and words stand for a command (list-commands)
    task: str
    # goes on with this thread; then agent and definition are empty
    thread: NotRequired[str]
    title: NotRequired[str]


class StartWorkflow(TypedDict):
    # what text is called in messages
    file: NotRequired[str]
    # that nodes find in their workspace; 8 MiB together
    files: NotRequired[list[InputFile]]
    # an object, as the definition's input says
    input: NotRequired[Any]
    # a definition, as YAML or JSON, in the place of workflow
    text: NotRequired[str]
    # hash of one of its versions, or the beginning of that; default the newest
    version: NotRequired[str]
    # name of a workflow of the server
    workflow: NotRequired[str]


class StdinAck(TypedDict):
    acked: int
    closed: bool


class StoreProblem(TypedDict):
    blob: NotRequired[str]
    # the last that was well, or the one that names the blob
    event: NotRequired[int]
    # whose history is damaged
    sandbox: NotRequired[str]
    # of the record in the stream
    sequence: NotRequired[int]
    tenant: str
    text: str
    thread: NotRequired[str]


class StreamEnd(TypedDict):
    seq: int
    state: str


class SymlinkFile(TypedDict):
    path: str
    # the exact bytes, when they are not UTF-8; they count instead of path
    path_bytes: NotRequired[str]
    target: str
    # the exact bytes, when they are not UTF-8; they count instead of target
    target_bytes: NotRequired[str]
    user: NotRequired[str]


class Template(TypedDict):
    bytes: int
    # of its sandboxes, unless they are asked for with others
    cpus: NotRequired[float]
    created_at: NotRequired[str]
    hash: str
    kind: Literal["host", "import"]
    languages: list[str]
    # as cpus
    memory_mb: NotRequired[int]
    name: str
    # devices and odd attributes that were left out
    skipped: NotRequired[int]
    # the image that it was made of
    source: NotRequired[TemplateSource]


class TemplateList(TypedDict):
    items: list[Template]


class TemplateNews(TypedDict):
    # the step was done by an earlier build
    cached: NotRequired[bool]
    # bytes
    done: NotRequired[int]
    kind: Literal["progress", "step", "output", "done"]
    # digest of the layer that done and total are about
    layer: NotRequired[str]
    # with the kind done
    made: NotRequired[Template]
    # of a pull: pull or unpack
    stage: NotRequired[str]
    # number of the step, from 1
    step: NotRequired[int]
    # how many there are
    steps: NotRequired[int]
    template: str
    text: NotRequired[str]
    # bytes
    total: NotRequired[int]


class TemplateSource(TypedDict):
    cmd: NotRequired[list[str]]
    digest: str
    entrypoint: NotRequired[list[str]]
    # set in sandboxes
    env: NotRequired[list[str]]
    platform: NotRequired[str]
    reference: NotRequired[str]
    user: NotRequired[str]
    working_dir: NotRequired[str]


class TemplateUsage(TypedDict):
    blob_bytes: int
    # layers as they came from registries
    blobs: int
    image_bytes: int
    # ext4 images for machines with a kernel of their own
    images: int
    tree_bytes: int
    trees: int


class TemplatesSwept(TypedDict):
    blobs: int
    # of images and blobs
    bytes: int
    images: int
    trees: int


class TerminalSize(TypedDict):
    cols: int
    rows: int


class Todo(TypedDict):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoList(TypedDict):
    items: list[Todo]


class ToolResult(TypedDict):
    # of a failure
    code: NotRequired[str]
    # the exit status of a command
    exit: NotRequired[int]
    # it was done and did not work, or was refused
    failed: bool
    text: str


class Transcript(TypedDict):
    before: NotRequired[int]
    cost_usd: float
    reason: NotRequired[str]
    run: NotRequired[str]
    # the last event that is in it
    seq: int
    state: NotRequired[str]
    steps: list[TranscriptStep]
    text: NotRequired[str]
    todos: NotRequired[list[Todo]]
    total: int
    usage: Usage
    waiting: NotRequired[list[str]]


class TranscriptApproval(TypedDict):
    allowed: list[str]
    # missing: whether the call may be done
    ask: NotRequired[Literal["question", "plan", "form"]]
    asked_at: str
    asked_seq: int
    # the id of the key that decided, or what did so by itself
    by: NotRequired[str]
    # what the key was called then
    by_name: NotRequired[str]
    decided_seq: NotRequired[int]
    # missing: it is not decided yet
    decision: NotRequired[str]
    expires_at: NotRequired[str]
    reason: NotRequired[str]
    text: NotRequired[str]


class TranscriptCall(TypedDict):
    approval: NotRequired[TranscriptApproval]
    # a summary for people, on one line
    args: str
    # of the whole output
    bytes: int
    # of a failure
    code: NotRequired[str]
    # the event with its result
    ended_seq: NotRequired[int]
    # of a command
    exit: NotRequired[int]
    # the beginning of the output
    head: NotRequired[str]
    id: str
    # the event with which it began
    started_seq: NotRequired[int]
    # waiting: for a person; answered: by one, in place of the tool
    status: Literal["pending", "waiting", "running", "done", "failed", "rejected", "answered"]
    # of the sub-agent that it started
    thread: NotRequired[str]
    took_ms: NotRequired[int]
    tool: str


class TranscriptFailure(TypedDict):
    attempt: int
    seq: int
    text: NotRequired[str]
    trouble: str
    # before the next attempt
    wait_ms: NotRequired[int]


TranscriptInput = TypedDict('TranscriptInput', {
    'from': "str",
    'name': "NotRequired[str]",
    'seq': "int",
    'text': "str",
})


class TranscriptStep(TypedDict):
    at: NotRequired[str]
    calls: NotRequired[list[TranscriptCall]]
    cost_usd: float
    # attempts of the model call that failed
    failures: NotRequired[list[TranscriptFailure]]
    # what entered the conversation before it
    inputs: NotRequired[list[TranscriptInput]]
    model: NotRequired[str]
    # what else happened: compacted, rewound, another machine
    notes: NotRequired[list[str]]
    # its beginning
    reasoning: NotRequired[str]
    # no longer part of the conversation
    rewound: NotRequired[bool]
    # of model.completed
    seq: int
    # from 1
    step: int
    stop: NotRequired[str]
    # its beginning
    text: NotRequired[str]
    # of the whole text, when text is only its beginning
    text_bytes: NotRequired[int]
    # the last event that its prompt knew
    through: NotRequired[int]
    took_ms: NotRequired[int]
    usage: Usage
    # what filled the model's window
    window: NotRequired[Window]


class TreeEntry(TypedDict):
    # permission bits as a number
    mode: int
    size: int
    # of a symlink
    target: NotRequired[str]
    type: Literal["file", "directory", "symlink", "other"]


class TreeNode(TypedDict):
    # permission bits as a number
    mode: int
    # relative to the workspace
    path: str
    # the exact path, when it is not UTF-8
    path_bytes: NotRequired[str]
    size: int
    # of a symlink
    target: NotRequired[str]
    type: Literal["file", "directory", "symlink", "other"]


class TreePage(TypedDict):
    items: list[TreeNode]
    next_page_token: NotRequired[str]


class TreeWritten(TypedDict):
    bytes: int
    entries: int


class Unsaved(TypedDict):
    # there are more
    cut: NotRequired[bool]
    # that differ, without directories
    files: int


class UpdateSandbox(TypedDict):
    idle_timeout_ms: NotRequired[int]
    # replaces all
    metadata: NotRequired[dict[str, str]]
    # the empty text takes it away
    name: NotRequired[str]
    # from now on; 0 = no end but the server's maximum
    ttl_ms: NotRequired[int]


class UpdateSchedule(TypedDict):
    paused: bool


class Usage(TypedDict):
    cache_read: NotRequired[int]
    cache_write: NotRequired[int]
    # the model's server told nothing
    estimated: NotRequired[bool]
    # neither read from nor written to a cache
    input: int
    output: int
    # part of output
    reasoning: NotRequired[int]


UsageReport = TypedDict('UsageReport', {
    'by': "Literal[\"day\", \"run\", \"agent\", \"model\"]",
    'from': "str",
    'items': "list[UsageRow]",
    'left_out': "NotRequired[int]",
    'to': "str",
    'total': "UsageRow",
})


class UsageRow(TypedDict):
    cost_usd: float
    # the day in UTC, as 2026-01-31; or the id of the run, or the name of the agent or the model
    key: NotRequired[str]
    runs: int
    # also of sub-agents
    steps: int
    # of the run
    title: NotRequired[str]
    # input, output and both of the cache
    tokens: int
    usage: Usage


class Used(TypedDict):
    # of machines that run
    cpus: float
    # that sandboxes, snapshots and histories really hold, histories of destroyed sandboxes too
    disk_held_mb: int
    # that was promised to sandboxes
    disk_mb: int
    # how long the server has looked at its sandboxes' files, and kept what they changed, since it started
    look_ms: int
    # of machines that run
    memory_mb: int
    sandboxes: int


class ValidateAgent(TypedDict):
    content: str
    # its name says what it is: .yaml, .yml, .json or .md
    path: str


class Window(TypedDict):
    # messages of people and of other agents
    inputs: int
    instructions: int
    # memory, skills, notes
    memory: NotRequired[int]
    # of the model, with its calls
    replies: int
    # of tool calls
    results: int
    # how many tokens fit; missing: not known
    size: NotRequired[int]
    # of what was said before
    summary: NotRequired[int]
    # their schemas
    tools: int
    total: int


class Workflow(TypedDict):
    description: NotRequired[str]
    # what is wrong with a file of the server's folder, which cannot be run then
    errors: NotRequired[list[FieldError]]
    # it is a file of the server's folder, as that is now
    folder: NotRequired[bool]
    graph: NotRequired[WorkflowGraph]
    # JSON Schema of what a run is started with; none = it is started with nothing
    input: NotRequired[Any]
    name: str
    # of one workflow alone, as all that follows
    text: NotRequired[str]
    topology: NotRequired[str]
    # the newest last
    versions: list[WorkflowVersion]


WorkflowEdge = TypedDict('WorkflowEdge', {
    'artifacts': "NotRequired[int]",
    'from': "str",
    'loop': "NotRequired[bool]",
    'max': "NotRequired[int]",
    'to': "str",
    'when': "NotRequired[str]",
})


class WorkflowGraph(TypedDict):
    edges: list[WorkflowEdge]
    # in an order in which they can be done
    vertices: list[WorkflowVertex]


class WorkflowList(TypedDict):
    items: list[Workflow]


class WorkflowNode(TypedDict):
    # who did it: an agent of the server, or inline
    agent: NotRequired[str]
    artifacts: NotRequired[list[str]]
    # of a person
    ask: NotRequired[str]
    attempt: int
    # who chose
    by: NotRequired[str]
    choice: NotRequired[str]
    choices: NotRequired[list[str]]
    # files that another node wrote differently at the same time
    conflicts: NotRequired[list[str]]
    cost_usd: NotRequired[float]
    ended_at: NotRequired[str]
    item: NotRequired[int]
    iteration: int
    # write, write#2 the second time, fetch[3] of an element, write!2 the second attempt
    label: str
    model: NotRequired[str]
    node: str
    reason: NotRequired[str]
    run: NotRequired[str]
    # where it worked; one that was made for it is removed at its end
    sandbox: NotRequired[str]
    started_at: str
    # running, waiting (for a person), succeeded, failed, cancelled, timed_out
    state: str
    steps: NotRequired[int]
    text: NotRequired[str]
    thread: NotRequired[str]
    tokens: NotRequired[int]


class WorkflowPart(TypedDict):
    # inline = one of the workflow alone
    agent: NotRequired[str]
    human: NotRequired[bool]
    # that is named; without one, the server chooses
    model: NotRequired[str]
    node: str
    # what keeps it from being started
    problem: NotRequired[str]
    sandbox: NotRequired[str]
    # without any, all
    tools: NotRequired[list[str]]


class WorkflowPlan(TypedDict):
    graph: WorkflowGraph
    nodes: list[WorkflowPart]
    # nothing keeps it from being started
    ok: bool
    # how often nodes can be started at most, further attempts not counted
    starts_max: int
    topology: str
    version: NotRequired[str]
    workflow: str


class WorkflowRun(TypedDict):
    by: NotRequired[str]
    cost_usd: NotRequired[float]
    created_at: str
    ended_at: NotRequired[str]
    # of the definition that it began with
    graph: NotRequired[WorkflowGraph]
    # of the definition that it began with
    hash: str
    id: str
    # what was done, in the order of its beginning
    nodes: NotRequired[list[WorkflowNode]]
    # nodes that are not decided
    open: NotRequired[list[str]]
    reason: NotRequired[str]
    result: NotRequired[Any]
    # that nodes share
    sandbox: NotRequired[str]
    # of the last event; this and what follows of one run alone
    seq: NotRequired[int]
    # nodes to which no edge was taken
    skipped: NotRequired[list[str]]
    # running, succeeded, failed, cancelled, timed_out
    state: str
    # of the nodes that have ended
    steps: NotRequired[int]
    # what went wrong
    text: NotRequired[str]
    tokens: NotRequired[int]
    version: NotRequired[str]
    workflow: str


class WorkflowRunPage(TypedDict):
    items: list[WorkflowRun]
    next_page_token: NotRequired[str]


class WorkflowVersion(TypedDict):
    at: NotRequired[str]
    by: NotRequired[str]
    file: str
    # of the text
    hash: NotRequired[str]
    # what the definition calls itself
    version: NotRequired[str]


class WorkflowVertex(TypedDict):
    # inline = one of the workflow alone
    agent: NotRequired[str]
    description: NotRequired[str]
    # it works once for each element of a list
    each: NotRequired[bool]
    # a person is asked
    human: NotRequired[bool]
    # paths meet here, and nothing is done
    meeting: NotRequired[bool]
    node: str
    # shared, own, fork; none = it has no sandbox
    sandbox: NotRequired[str]
