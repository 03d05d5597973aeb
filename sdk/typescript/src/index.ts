// Client of skete: isolated machines for AI agents, on a server of your own.
//
//     import { Client } from 'skete'
//     const skete = new Client()                  // $SKETE_URL and $SKETE_KEY
//     const sandbox = await skete.sandboxes.create()
//     const { stdout } = await sandbox.run('echo hello')

export { Client, Sandboxes, Snapshots, type SandboxFilter } from './client.js'
export { Command, type CommandSpec, type ExecOptions, type Exit, type OutputChunk, type OutputOptions, type RunOptions, type RunResult, type StartOptions } from './command.js'
export {
  ConflictError, CorruptError, DeniedError, ExistsError, InternalError, InvalidError, LimitError, NotFoundError, SketeError, UnavailableError, UnsupportedError,
  type ErrorClass, type Problem,
} from './errors.js'
export { Files, type Content, type FileInfo, type GrepOptions, type ReadOptions, type WriteOptions } from './files.js'
export { History, type Applied, type ChangePlan, type Revision, type UndoOptions } from './history.js'
export type { components } from './openapi.js'
export { Run, Runs, type Approval, type RunEvent, type RunEventOptions, type RunInfo, type RunNews } from './run.js'
export { Sandbox, type ProcessInfo, type SandboxInfo, type SnapshotInfo } from './sandbox.js'
export type { CallOptions, ClientOptions } from './transport.js'
