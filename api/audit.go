package api

import "time"

// AuditRecord is what happened once.
type AuditRecord struct {
	N      uint64            `json:"n" doc:"from 1, without gaps"`
	Time   time.Time         `json:"time"`
	Node   string            `json:"node,omitempty"`
	Tenant string            `json:"tenant,omitempty"`
	Who    string            `json:"who" doc:"the name of a key or a login, a run, skete"`
	What   string            `json:"what" doc:"api.create-sandbox, tool.started, network.refused, …"`
	On     string            `json:"on,omitempty" doc:"the sandbox, the thread, …"`
	Result string            `json:"result,omitempty"`
	Detail map[string]string `json:"detail,omitempty" doc:"large texts are cut; never values of secrets"`
}

// AuditList is a page of records, the newest first.
type AuditList struct {
	Items []AuditRecord `json:"items"`
}

// AuditReport is what was found of the audit log.
type AuditReport struct {
	Records uint64     `json:"records"`
	First   uint64     `json:"first" doc:"number of the oldest record that is kept; 0 = there is none"`
	Last    uint64     `json:"last"`
	Hash    string     `json:"hash" doc:"of the last record: kept elsewhere, it shows later that nothing before it was changed"`
	Removed uint64     `json:"removed,omitempty" doc:"number of the last record that was removed since it was old"`
	Bad     []AuditBad `json:"bad" doc:"what is wrong, the first first; at most 20"`
}

// AuditBad is a place where the log is not what was written.
type AuditBad struct {
	N    uint64 `json:"n" doc:"of the record; of missing ones, of the first"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Why  string `json:"why"`
}
