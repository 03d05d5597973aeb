package api

import "time"

// Revision is one recorded state of a sandbox's workspace.
type Revision struct {
	N     uint64    `json:"n" doc:"counts from 1; a number is never used again"`
	Root  string    `json:"root" doc:"hash of the whole tree: equal roots are equal trees"`
	Time  time.Time `json:"time"`
	Files int       `json:"files"`
	Bytes int64     `json:"bytes"`

	Thread string `json:"thread,omitempty"`
	Run    string `json:"run,omitempty"`
	Step   int    `json:"step,omitempty"`
	Call   string `json:"call,omitempty" doc:"the tool call whose result it is"`
	Actor  string `json:"actor,omitempty" doc:"who changed the files; outside = not known"`
	Label  string `json:"label,omitempty"`
	// Title and Who are for people; Label and Actor are what was noted.
	Title string `json:"title" doc:"in a few words, of what it is the result"`
	Who   string `json:"who" doc:"in a few words, who made it"`

	Undoes uint64 `json:"undoes,omitempty" doc:"the revision that an undo, a redo or a restore went back to, or that a revert took back"`
	Torn   int    `json:"torn,omitempty" doc:"how many files were changing while they were read"`
	// State is what the revision survives.
	State string `json:"state" enum:"local,durable" doc:"local: the loss of power; durable: the loss of the sandbox too"`
}

// RevisionPage is a page of revisions, newest first.
type RevisionPage struct {
	Items         []Revision `json:"items"`
	NextPageToken string     `json:"next_page_token,omitempty"`
	// Current, Undo and Redo say where the files are in the history: the revision
	// whose content they have, and where undo and redo would go; 0 = nowhere.
	Current uint64 `json:"current"`
	Undo    uint64 `json:"undo"`
	Redo    uint64 `json:"redo"`
	// Unsaved is absent when the files are those of a revision.
	Unsaved *Unsaved `json:"unsaved,omitempty" doc:"what was changed and is in no revision yet; the first to be undone"`
	// Unseen is set when the files could not be looked at: then they were at
	// Current when they were seen last.
	Unseen string `json:"unseen,omitempty" doc:"why the files could not be looked at; current is where they were last"`
}

// Unsaved is how the files differ from the newest revision.
type Unsaved struct {
	Files int  `json:"files" doc:"that differ, without directories"`
	Cut   bool `json:"cut,omitempty" doc:"there are more"`
}

// MakeRevision asks for a revision of what is on disk now.
type MakeRevision struct {
	Label string `json:"label,omitempty" maxLength:"200"`
}

// TreeEntry is what is at a path in a revision.
type TreeEntry struct {
	Type   string `json:"type" enum:"file,directory,symlink,other"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode" doc:"permission bits as a number"`
	Target string `json:"target,omitempty" doc:"of a symlink"`
}

// TreePage is a page of what is in a directory of a revision, by name.
type TreePage struct {
	Items         []TreeNode `json:"items"`
	NextPageToken string     `json:"next_page_token,omitempty"`
}

// TreeNode is a name in a directory of a revision.
type TreeNode struct {
	Path      string `json:"path" doc:"relative to the workspace"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact path, when it is not UTF-8"`
	TreeEntry
}

// PathChange is a path that differs between two trees. Before is absent for
// what was made, After for what was removed.
type PathChange struct {
	Path      string     `json:"path" doc:"relative to the workspace"`
	PathBytes []byte     `json:"path_bytes,omitempty" doc:"the exact path, when it is not UTF-8"`
	Action    string     `json:"action" enum:"add,remove,change,attributes"`
	Before    *TreeEntry `json:"before,omitempty"`
	After     *TreeEntry `json:"after,omitempty"`
	Hunks     []DiffHunk `json:"hunks,omitempty"`
	Binary    bool       `json:"binary,omitempty" doc:"it is no text: there are no hunks"`
	Large     bool       `json:"large,omitempty" doc:"its hunks would be too much"`
}

// DiffHunk is a run of changed lines with lines of context; line numbers count
// from 1, as in a unified diff.
type DiffHunk struct {
	Before      int        `json:"before"`
	BeforeLines int        `json:"before_lines"`
	After       int        `json:"after"`
	AfterLines  int        `json:"after_lines"`
	Lines       []DiffLine `json:"lines"`
}

// DiffLine is one line of a hunk.
type DiffLine struct {
	Kind      string `json:"kind" enum:"same,remove,add"`
	Text      string `json:"text" doc:"without the newline; bytes that are not UTF-8 are replaced"`
	NoNewline bool   `json:"no_newline,omitempty" doc:"the file ends here without a newline"`
}

// Diff is what differs between two revisions, by path.
type Diff struct {
	From  uint64       `json:"from" doc:"0 = the empty tree"`
	To    uint64       `json:"to" doc:"0 = the files as they are now, which no revision has yet"`
	Files []PathChange `json:"files"`
	Cut   bool         `json:"cut,omitempty" doc:"there is more than is shown"`
}

// RevisionChanges is a revision and what it changed against the one before it.
type RevisionChanges struct {
	Revision
	From  uint64       `json:"from" doc:"the revision before it; 0 = none is kept"`
	Files []PathChange `json:"files_changed"`
	Cut   bool         `json:"cut,omitempty" doc:"there is more than is shown"`
}

// Ways back that can be planned.
const (
	PlanUndo    = "undo"
	PlanRedo    = "redo"
	PlanRestore = "restore"
	PlanRevert  = "revert"
)

// PlanChange asks what a way back would do; nothing is done.
type PlanChange struct {
	Do string `json:"do" enum:"undo,redo,restore,revert"`
	// Scope of an undo: what is undone.
	Scope  string `json:"scope,omitempty" enum:"last,step,run,turn,call" doc:"of an undo: the last change (default), or all of the last step, run, turn of the conversation or tool call, or of the named one"`
	Thread string `json:"thread,omitempty" maxLength:"256"`
	Run    string `json:"run,omitempty" maxLength:"256" doc:"of an undo: this run"`
	Step   int    `json:"step,omitempty" minimum:"0" doc:"of an undo: this step of the run"`
	Call   string `json:"call,omitempty" maxLength:"256" doc:"of an undo: this tool call"`
	// N is the revision to restore or to revert.
	N         uint64         `json:"n,omitempty" doc:"the revision to restore, or to take back"`
	Path      string         `json:"path,omitempty" doc:"of a restore: this path alone, and what is beneath it"`
	PathBytes []byte         `json:"path_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of path"`
	Choices   []RevertChoice `json:"choices,omitempty" maxItems:"1000" doc:"of a revert: what to do where there is a conflict"`
}

// RevertChoice says what to do with a path that was changed again since.
type RevertChoice struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of path"`
	Choice    string `json:"choice" enum:"keep,take,markers" doc:"keep what is now, take what was before, or write both with markers"`
}

// ChangePlan is what a way back would do, path by path.
type ChangePlan struct {
	ID        string         `json:"id" doc:"what to apply"`
	Do        string         `json:"do" enum:"undo,redo,restore,revert"`
	N         uint64         `json:"n" doc:"the revision that it goes to, or takes back"`
	Files     []PathChange   `json:"files"`
	Total     int            `json:"total" doc:"how many paths it would touch"`
	Cut       bool           `json:"cut,omitempty" doc:"there are more than are shown"`
	Conflicts []PathConflict `json:"conflicts"`
	// Left is what differs and stays as it is.
	Left []PathLeft `json:"left,omitempty" doc:"what differs from the revision and stays as it is: what git keeps of repositories, unless a path in there is restored"`
}

// PathLeft is a path that a way back leaves as it is.
type PathLeft struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact path, when it is not UTF-8"`
	Why       string `json:"why"`
}

// PathConflict is a path that was changed by what is to be reverted and again
// since. A plan with conflicts is not applied.
type PathConflict struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact path, when it is not UTF-8"`
	Why       string `json:"why"`
	Markers   bool   `json:"markers" doc:"both sides can be written into it"`
}

// KeptHistory is the history of a sandbox that is destroyed.
type KeptHistory struct {
	Sandbox string    `json:"sandbox" doc:"the id that it had"`
	Bytes   int64     `json:"bytes" doc:"of the server's disk; they count in the tenant's quota"`
	Written time.Time `json:"written" doc:"when something was written to it last"`
}

// KeptHistories are those of a tenant, the largest first.
type KeptHistories struct {
	Items []KeptHistory `json:"items"`
}

// MoveHistory asks for the history and the files of another sandbox.
type MoveHistory struct {
	From string `json:"from" minLength:"1" maxLength:"100" doc:"the sandbox whose history it is, by its id, the beginning of it, or its name; by the whole id it may be gone"`
	N    uint64 `json:"n,omitempty" doc:"the revision that the files become; default the last"`
}

// ApplyPlan asks for what was planned.
type ApplyPlan struct {
	Plan string `json:"plan" minLength:"1" maxLength:"256"`
}

// Applied is the result of a plan.
type Applied struct {
	Revision Revision     `json:"revision" doc:"of the files as they are now"`
	Files    []PathResult `json:"files"`
	Cut      bool         `json:"cut,omitempty" doc:"there are more than are shown"`
}

// PathResult is what became of a path.
type PathResult struct {
	PathChange
	Result string `json:"result" enum:"done,kept" doc:"kept: it holds what the history does not have, or it was changed meanwhile"`
}

// PathRevisions is the history of one path, newest first: the revisions in
// which it differs from the one before.
type PathRevisions struct {
	Items []PathRevision `json:"items"`
	Cut   bool           `json:"cut,omitempty" doc:"there are more than are shown"`
}

// PathRevision is a revision that changed a path; Entry is absent where it was removed.
type PathRevision struct {
	Revision
	Entry *TreeEntry `json:"entry,omitempty"`
}
