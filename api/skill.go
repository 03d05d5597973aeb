package api

import (
	"encoding/json"
	"time"
)

// Skill is a folder with SKILL.md that teaches agents how a kind of work is done (the Agent
// Skills standard). A version is the hash of all its files.
type Skill struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Version     string         `json:"version" doc:"that new runs get"`
	Versions    []SkillVersion `json:"versions" doc:"those that are kept, the oldest first"`
	Agents      []string       `json:"agents" doc:"that have it, by name; none = all agents of the tenant"`
	Trusted     bool           `json:"trusted" doc:"the version that new runs get is: its allowed_tools are approved beforehand"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
	// The rest is of one version, and not in lists.
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty" doc:"what it needs, in words"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	AllowedTools  []string          `json:"allowed_tools,omitempty" doc:"that its author wants approved beforehand; of a version that is not trusted they approve nothing"`
	Tool          *SkillTool        `json:"tool,omitempty" doc:"that it is as well: its tool.yaml"`
	Instructions  string            `json:"instructions,omitempty"`
	Files         []string          `json:"files,omitempty"`
	Warnings      []string          `json:"warnings,omitempty" doc:"advice of the standard that it does not follow"`
}

// SkillTool is the tool that a skill is as well. Its command runs in the sandbox of the run,
// with the skill at /skills/NAME.
type SkillTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input,omitempty" doc:"JSON Schema of the arguments"`
	Output      json.RawMessage `json:"output,omitempty" doc:"JSON Schema of what it returns; none = any text"`
}

// SkillVersion is one content of a skill.
type SkillVersion struct {
	Version     string    `json:"version"`
	Description string    `json:"description"`
	Bytes       int64     `json:"bytes"`
	Files       int       `json:"files"`
	From        string    `json:"from,omitempty" doc:"where it came from, as its installer said"`
	InstalledAt time.Time `json:"installed_at"`
	TrustedBy   string    `json:"trusted_by,omitempty" doc:"who has said that its allowed_tools are approved beforehand; none = they are not"`
	TrustedAt   time.Time `json:"trusted_at,omitzero"`
}

// InstallSkill installs a skill, or a new version of it, which new runs get.
type InstallSkill struct {
	Archive []byte    `json:"archive" doc:"a zip, a tar or a tar.gz of the folder, as base64; unpacked at most 16 MiB, 10 MiB a file, 1,000 files"`
	Path    string    `json:"path,omitempty" maxLength:"240" doc:"the folder in it that holds SKILL.md; needed when there are several"`
	From    string    `json:"from,omitempty" maxLength:"1024" doc:"where it came from, for people"`
	Agents  *[]string `json:"agents,omitempty" maxItems:"100" doc:"that shall have it, none = all; default as before, at first all"`
	New     bool      `json:"new,omitempty" doc:"refuse it if there is one of that name"`
	Trust   bool      `json:"trust,omitempty" doc:"its allowed_tools are approved beforehand where a rule asks; never what a rule denies"`
	DryRun  bool      `json:"dry_run,omitempty" doc:"show what would be installed, and install nothing"`
}

// ChangeSkill changes what is said of a skill; what is left out stays.
type ChangeSkill struct {
	Version string    `json:"version,omitempty" maxLength:"64" doc:"new runs get this one, which is kept; its first 8 characters are enough"`
	Agents  *[]string `json:"agents,omitempty" maxItems:"100" doc:"none = all"`
	// A version is trusted by its whole hash: the beginning of one is no promise about a content.
	Trust    string `json:"trust,omitempty" maxLength:"64" doc:"this version, by its whole hash, is trusted: its allowed_tools are approved beforehand"`
	Distrust string `json:"distrust,omitempty" maxLength:"64" doc:"this one is trusted no longer, at once"`
}

// SkillList is the skills of a tenant, by name.
type SkillList struct {
	Items []Skill `json:"items"`
}
