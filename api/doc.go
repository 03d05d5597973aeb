// Package api holds the types that cross HTTP, and nothing that acts. The
// server and every client share it; OpenAPI 3.1 is generated from it.
//
// Conventions: names are snake_case; units stand last (`timeout_ms`); times
// are RFC 3339; lists come as a page with `next_page_token`; errors are
// Problem (RFC 9457). A file name that is not UTF-8 has its exact bytes in
// `path_bytes` (base64) beside a lossy `path`. A request with the header
// `Skete-Wake: false` wakes no paused sandbox: it is refused with 409.
//
// # Routes (all under /v1, JSON unless said)
//
//	GET    /info                                  Info
//	POST   /sandboxes                             CreateSandbox -> Sandbox; header Idempotency-Key
//	GET    /sandboxes                             SandboxPage; ?state= &metadata=k=v &page_size= &page_token=
//	GET    /events                                SSE of Event; ?from= &kind=; resumes by Last-Event-ID
//	GET    /sandboxes/events                      SSE of SandboxEvent; resumes by Last-Event-ID
//	GET    /sandboxes/{id}                        Sandbox
//	PATCH  /sandboxes/{id}                        UpdateSandbox -> Sandbox
//	DELETE /sandboxes/{id}                        destroys, from every state
//	POST   /sandboxes/{id}/{start,stop,pause,resume}
//	POST   /sandboxes/{id}/snapshots              CreateSnapshot -> Snapshot; header Idempotency-Key
//	POST   /sandboxes/{id}/fork                   ForkSandbox -> Forked; header Idempotency-Key
//	GET    /snapshots                             SnapshotList
//	GET    /snapshots/{id}                        Snapshot
//	DELETE /snapshots/{id}                        what needs its files keeps them until it is gone
//	GET    /sandboxes/{id}/metrics                Metrics
//	GET    /sandboxes/{id}/network                NetworkPolicy
//	PUT    /sandboxes/{id}/network                NetworkPolicy: what may leave it, from the next request on
//	GET    /sandboxes/{id}/network/log            NetworkLog; ?from=
//	GET    /audit                                 AuditList; ?tenant= &who= &what= &on= &since= &until= &before= &page_size=
//	GET    /audit/verify                          AuditReport
//	GET    /audit/export                          text: the log as it is in its files
//	GET    /sandboxes/{id}/models                 SandboxModels
//	PUT    /sandboxes/{id}/models                 SetSandboxModels -> SandboxModels, from the next call on
//	POST   /sandboxes/{id}/processes              StartProcess -> Process (201; 200 when the key was known)
//	GET    /sandboxes/{id}/processes              ProcessPage
//	GET    /sandboxes/{id}/processes/{key}        Process
//	DELETE /sandboxes/{id}/processes/{key}        forget an exited one
//	GET    /sandboxes/{id}/processes/{key}/wait   ?wait_ms=  Process
//	POST   /sandboxes/{id}/processes/{key}/signal SignalProcess
//	POST   /sandboxes/{id}/processes/{key}/resize TerminalSize
//	POST   /sandboxes/{id}/processes/{key}/stdin  octet-stream; ?offset= &eof=  StdinAck
//	GET    /sandboxes/{id}/processes/{key}/output SSE of OutputEvent; ?stdout_from= &stderr_from= &follow=; resumes by Last-Event-ID
//	GET    /sandboxes/{id}/processes/{key}/attach WebSocket of Frames; ?stdout_from= &stderr_from=
//	POST   /sandboxes/{id}/exec:run               RunCommand -> CommandResult, when the command has ended
//	GET    /sandboxes/{id}/exec                   WebSocket of Frames; the client's first frame is FrameStart
//	GET    /sandboxes/{id}/files                  octet-stream, Range, ETag "sha256"; ?path= &user=
//	PUT    /sandboxes/{id}/files                  octet-stream -> FileWritten; ?path= &mode= &make_parents= ; If-Match "sha256", If-None-Match *; ?offset= (ranged) or ?append=true
//	DELETE /sandboxes/{id}/files                  ?path= &recursive= &missing_ok=
//	GET    /sandboxes/{id}/files/stat             File; ?path= &follow= &hash=
//	GET    /sandboxes/{id}/files/list             FilePage; ?path= &depth= &page_size= &page_token=
//	POST   /sandboxes/{id}/files/{mkdir,move,copy,chmod,symlink}
//	GET    /sandboxes/{id}/files/glob             GlobResult; ?base= &pattern= &limit=
//	GET    /sandboxes/{id}/files/grep             GrepResult; ?base= &pattern= &literal= …
//	GET    /sandboxes/{id}/files/watch            SSE of FileEvent; ?path= &recursive=; resumes by Last-Event-ID
//	GET    /sandboxes/{id}/tree                   application/x-tar; ?path=
//	PUT    /sandboxes/{id}/tree                   application/x-tar -> TreeWritten; ?path=
//	GET    /sandboxes/{id}/services               ServiceList
//	POST   /sandboxes/{id}/services               ServiceSpec -> Service; ?wait_ms=
//	POST   /sandboxes/{id}/services/load          reads skete.yaml of the workspace -> ServicesLoaded; ?wait_ms=
//	GET    /sandboxes/{id}/services/{name}        Service
//	DELETE /sandboxes/{id}/services/{name}        stop and forget
//	POST   /sandboxes/{id}/services/{name}/start  ?wait_ms=  Service
//	POST   /sandboxes/{id}/services/{name}/stop   ?wait_ms=  Service
//	POST   /sandboxes/{id}/services/{name}/restart ?wait_ms=  Service
//	GET    /sandboxes/{id}/services/{name}/logs   SSE of ServiceLogEvent; ?from= &follow=; resumes by Last-Event-ID
//	GET    /sandboxes/{id}/ports                  PortList
//	GET    /sandboxes/{id}/ports/watch            SSE of PortEvent
//	GET    /sandboxes/{id}/ports/{port}/connect   WebSocket, binary messages = bytes of the TCP stream; an empty one ends its direction (half-close)
//	GET    /sandboxes/{id}/history                RevisionPage; ?thread= &run= &page_size= &page_token=
//	POST   /sandboxes/{id}/history                MakeRevision -> Revision (201; 200 when nothing changed)
//	GET    /sandboxes/{id}/history/{n}            RevisionChanges
//	GET    /sandboxes/{id}/history/{n}/file       octet-stream; ?path=
//	GET    /sandboxes/{id}/history/{n}/list       TreePage; ?path= &page_size= &page_token=
//	GET    /sandboxes/{id}/history/{n}/archive    tar of a directory; ?path=
//	GET    /sandboxes/{id}/history/diff           Diff; ?from= &to= &path= &hunks= &context= &files=
//	GET    /sandboxes/{id}/history/path           PathRevisions; ?path= &page_size=
//	GET    /sandboxes/{id}/history/export         a stream for git fast-import
//	POST   /sandboxes/{id}/history/plan           PlanChange -> ChangePlan
//	POST   /sandboxes/{id}/history/apply          ApplyPlan -> Applied; 409 when the files changed since
//	POST   /sandboxes/{id}/history/move           MoveHistory -> Revision: from a sandbox that may be gone
//	DELETE /sandboxes/{id}/history                of a destroyed sandbox
//	GET    /histories                             KeptHistories: of destroyed sandboxes
//	POST   /sandboxes/{id}/previews               CreatePreview -> Preview: once and for the caller, or a public link
//	GET    /sandboxes/{id}/previews               PreviewList: the public links
//	DELETE /sandboxes/{id}/previews/{preview}     takes a public link back
//	GET    /previews/key                          PreviewKey
//	GET    /login                                 Login: who is asking
//	POST   /runs                                  StartRun -> Run; header Idempotency-Key
//	GET    /runs                                  RunPage; ?state= &thread= &agent= &label=k=v &subagents= &page_size= &page_token=
//	GET    /runs/{id}                             Run
//	POST   /runs/{id}/send                        SendInput -> Sent; header Idempotency-Key
//	POST   /runs/{id}/cancel                      CancelRun -> Run
//	POST   /runs/{id}/resume                      ResumeRun -> Run
//	POST   /runs/{id}/compact                     CompactRun -> Run: a summary in place of the conversation so far
//	POST   /runs/{id}/fork                        ForkRun -> Run; header Idempotency-Key
//	POST   /runs/{id}/rewind                      RewindRun -> Run
//	POST   /runs/{id}/replay                      Run: the same, again, in a fresh sandbox
//	GET    /runs/{id}/compare                     Comparison; ?with=
//	POST   /runs/{id}/shares                      CreateShare -> Share, with the path at which the run can be read without a key
//	GET    /runs/{id}/shares                      ShareList
//	DELETE /runs/{id}/shares/{share}              takes one back
//	GET    /runs/{id}/approvals                   ApprovalList, of its sub-agents too
//	POST   /runs/{id}/decisions                   DecideList -> DecidedList
//	GET    /approvals                             ApprovalList: all that wait
//	GET    /runs/{id}/events                      SSE of RunStreamItem; ?from= &follow= &live=; resumes by Last-Event-ID. With Accept: application/json RunEventPage; ?last= &before=
//	GET    /runs/{id}/transcript                  Transcript; ?last= &before=
//	GET    /runs/{id}/outline                     RunOutline; ?last= &before=
//	GET    /runs/{id}/todos                       TodoList
//	GET    /runs/{id}/calls/{call}                CallDetail
//	GET    /runs/{id}/calls/{call}/output         octet-stream, Range; ?offset=
//	GET    /blobs/{hash}                          octet-stream, Range: content that an event names by hash
//	GET    /usage                                 UsageReport; ?by= &from= &to=
//	GET    /follow                                WebSocket of FollowRequest and FollowMessage (text)
//	POST   /schedules                             CreateSchedule -> Schedule; header Idempotency-Key
//	GET    /schedules                             SchedulePage; ?page_size= &page_token=
//	GET    /schedules/{id}                        Schedule; by its id or its name, here and below
//	PATCH  /schedules/{id}                        UpdateSchedule -> Schedule: pauses it, or lets it go on
//	DELETE /schedules/{id}                        its runs stay
//	POST   /schedules/{id}/run                    Run: one now; header Idempotency-Key
//	POST   /workflows                             PutWorkflow -> Workflow: kept under its name, or a new version of it
//	GET    /workflows                             WorkflowList: what can be run by name
//	GET    /workflows/{name}                      Workflow with its text; ?version=
//	DELETE /workflows/{name}                      its runs keep what they began with
//	POST   /workflow-plans                        StartWorkflow -> WorkflowPlan: starts nothing
//	POST   /workflow-runs                         StartWorkflow -> WorkflowRun; header Idempotency-Key
//	GET    /workflow-runs                         WorkflowRunPage; ?page_size= &page_token=
//	GET    /workflow-runs/{id}                    WorkflowRun with what its nodes did; waits for news with ?after= &wait_ms=
//	POST   /workflow-runs/{id}/cancel             CancelRun -> WorkflowRun
//	POST   /workflow-runs/{id}/answer             AnswerWorkflow -> WorkflowRun: where a node asks a person
//	GET    /models                                ModelList
//	GET    /agents                                AgentList
//	GET    /agents/{name}                         Agent
//	GET    /commands                              SlashCommandList: tasks that have names
//	POST   /tools/{name}/run                      RunTool -> ToolResult: leaving it ends what it does
//	POST   /agents/validate                       ValidateAgent -> AgentValidated
//	DELETE /threads/{id}                          forgets a conversation: its log and its sub-agents'
//	GET    /templates                             TemplateList
//	POST   /templates                             application/x-tar: a root file system, docker save, an OCI layout, a bundle -> Template; ?name= &platform=
//	POST   /templates/pull                        PullTemplate -> SSE of TemplateNews; leaving it cancels
//	POST   /templates/build                       application/x-tar -> SSE of TemplateNews; ?name= &fresh=true
//	POST   /templates/prepare                     PrepareTemplates -> SSE of TemplateNews
//	GET    /pool                                  Pool
//	GET    /plugins                               PluginList
//	GET    /mcp/servers                           MCPServerList; with the scope admin of all tenants
//	POST   /templates/gc                          TemplatesSwept; ?all=true
//	GET    /templates/{name}                      Template
//	GET    /templates/{name}/bundle               application/x-tar, which the import takes
//	GET    /usage/templates                       TemplateUsage
//	DELETE /templates/{name}
//	GET    /secrets                               SecretList
//	GET    /secrets/{name}                        Secret, never its value
//	PUT    /secrets/{name}                        PutSecret -> Secret: a new one, or a new version
//	PATCH  /secrets/{name}                        ChangeSecret -> Secret
//	DELETE /secrets/{name}
//	GET    /skills                                SkillList
//	POST   /skills                                InstallSkill -> Skill: a new one, or a new version
//	GET    /skills/{name}                         Skill, whole; ?version=
//	PATCH  /skills/{name}                         ChangeSkill -> Skill
//	DELETE /skills/{name}
//	POST   /keys                                  CreateKey -> CreatedKey (the secret, once)
//	GET    /keys                                  KeyList
//	DELETE /keys/{id}
//
//	GET    /fsck                                  Checked; ?tenant= (all)
//	DELETE /tenants/{name}                        Erased; 409 while runs are under way
//
// A stream of events that ends with an error says so by an event "problem"
// whose data is a Problem; comments keep it alive. A run's stream has events
// "heartbeat" in their place, which a browser can see too, and says by an event
// "end" that the run is over; one that ends without broke and is to be resumed.
// A browser opens at most six connections to a server over HTTP/1.1: a page
// that follows several runs uses the WebSocket.
//
// Outside /v1: /s/{id} (leads to the page of a sandbox), /share/{secret} (a run, for
// people without a key), /healthz, /readyz, /metrics, /openapi.json, /openapi.yaml, /docs,
// /preview/{label} (sends a browser that is logged in to a preview), /login and /logout
// (forms for browsers), /login/away and /login/back (by an identity provider), /mcp (these
// as tools of the Model Context Protocol);
// on the unix socket alone /debug/pprof/.
package api
