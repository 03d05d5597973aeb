// Package kit is the set of all tools that are built in.
//
//	tools, err := kit.New().Make(env, definition.Tools)
package kit

import (
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/file"
	"github.com/skete-dev/skete/tool/history"
	"github.com/skete-dev/skete/tool/service"
	"github.com/skete-dev/skete/tool/shell"
	"github.com/skete-dev/skete/tool/task"
)

// New returns a registry of them, in the order in which models see them. More
// may be added.
func New() *tool.Registry {
	r := &tool.Registry{}
	task.AddTodo(r)
	file.Add(r)
	shell.Add(r)
	service.Add(r)
	history.Add(r)
	task.Add(r)
	task.AddSkill(r)
	task.AddCompact(r)
	task.AddAsk(r)
	return r
}
