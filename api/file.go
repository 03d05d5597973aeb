package api

import "time"

// File is what is known of a path in a sandbox.
type File struct {
	Path       string    `json:"path"`
	PathBytes  []byte    `json:"path_bytes,omitempty" doc:"the exact name, when it is not UTF-8"`
	Name       string    `json:"name"`
	Type       string    `json:"type" enum:"file,directory,symlink,other"`
	Size       int64     `json:"size"`
	Mode       uint32    `json:"mode" doc:"permission bits as a number"`
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
	ModifiedAt time.Time `json:"modified_at"`
	Target     string    `json:"target,omitempty" doc:"of a symlink"`
	// TargetBytes counts instead of Target.
	TargetBytes []byte `json:"target_bytes,omitempty" doc:"the exact target, when it is not UTF-8"`
	SHA256      string `json:"sha256,omitempty"`
}

// FilePage is a page of a directory listing.
type FilePage struct {
	Items         []File `json:"items"`
	NextPageToken string `json:"next_page_token,omitempty"`
}

// FileWritten answers a write.
type FileWritten struct {
	File
}

// TreeWritten answers a tree upload.
type TreeWritten struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Removed answers a removal.
type Removed struct {
	Removed int64 `json:"removed"`
}

// MakeDir, MoveFile, CopyFile, ChmodFile and SymlinkFile are requests on
// paths; User empty = the sandbox's user. Each answers with File.
type MakeDir struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of path"`
	User      string `json:"user,omitempty"`
	Parents   bool   `json:"parents,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
}

// MoveFile renames a file or directory.
type MoveFile struct {
	Source           string `json:"source"`
	SourceBytes      []byte `json:"source_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of source"`
	Destination      string `json:"destination"`
	DestinationBytes []byte `json:"destination_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of destination"`
	User             string `json:"user,omitempty"`
	Overwrite        bool   `json:"overwrite,omitempty"`
}

// CopyFile copies a file or directory.
type CopyFile struct {
	Source           string `json:"source"`
	SourceBytes      []byte `json:"source_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of source"`
	Destination      string `json:"destination"`
	DestinationBytes []byte `json:"destination_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of destination"`
	User             string `json:"user,omitempty"`
	Overwrite        bool   `json:"overwrite,omitempty"`
}

// ChmodFile sets permission bits.
type ChmodFile struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of path"`
	User      string `json:"user,omitempty"`
	Mode      uint32 `json:"mode"`
	Recursive bool   `json:"recursive,omitempty"`
}

// SymlinkFile makes a symbolic link at Path.
type SymlinkFile struct {
	Target      string `json:"target"`
	TargetBytes []byte `json:"target_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of target"`
	Path        string `json:"path"`
	PathBytes   []byte `json:"path_bytes,omitempty" doc:"the exact bytes, when they are not UTF-8; they count instead of path"`
	User        string `json:"user,omitempty"`
}

// GlobResult lists matches.
type GlobResult struct {
	Items     []File `json:"items"`
	Truncated bool   `json:"truncated"`
}

// GrepMatch is one matching line.
type GrepMatch struct {
	Path      string   `json:"path"`
	PathBytes []byte   `json:"path_bytes,omitempty" doc:"the exact name, when it is not UTF-8"`
	Line      int      `json:"line"`
	Column    int      `json:"column"`
	Text      string   `json:"text"`
	Before    []string `json:"before,omitempty"`
	After     []string `json:"after,omitempty"`
}

// GrepResult lists matches and what was not looked at.
type GrepResult struct {
	Items         []GrepMatch `json:"items"`
	Truncated     bool        `json:"truncated"`
	FilesSearched int         `json:"files_searched"`
	FilesSkipped  int         `json:"files_skipped"`
}

// FileEvent is a change in a watched tree. The SSE id is "<watch id>:<seq>";
// the event name is create, write, remove, rename, chmod or overflow (events
// lost_from..lost_to are gone: look at the tree again).
type FileEvent struct {
	Seq       uint64 `json:"seq"`
	Type      string `json:"type"`
	Path      string `json:"path,omitempty"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"the exact name, when it is not UTF-8"`
	Directory bool   `json:"directory,omitempty"`
	LostFrom  uint64 `json:"lost_from,omitempty"`
	LostTo    uint64 `json:"lost_to,omitempty"`
}

// Port is an open TCP port inside a sandbox.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
}

// PortList lists open ports.
type PortList struct {
	Items []Port `json:"items"`
}

// PortEvent tells of a port that opened or closed.
type PortEvent struct {
	Type string `json:"type" enum:"opened,closed"`
	Port Port   `json:"port"`
}
