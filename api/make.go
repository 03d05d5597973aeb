package api

// PrepareTemplates asks for ready templates to be made.
type PrepareTemplates struct {
	Names []string `json:"names,omitempty" maxItems:"16" doc:"debian, python, node, go, ruby"`
	All   bool     `json:"all,omitempty" doc:"all that there are"`
	// For names no template but a sandbox that is about to be created.
	For *CreateSandbox `json:"for,omitempty" doc:"the template that this sandbox would start from, if it is a ready one"`
}

// Kinds of TemplateNews.
const (
	NewsProgress = "progress" // a line about what happens
	NewsStep     = "step"     // a step of a build begins, or was done before
	NewsOutput   = "output"   // a piece of what a step writes
	NewsDone     = "done"     // a template is there
)

// TemplateNews is one piece of what happens while templates are made. A stream
// that ends without an error has told all.
type TemplateNews struct {
	Kind     string    `json:"kind" enum:"progress,step,output,done"`
	Template string    `json:"template"`
	Text     string    `json:"text,omitempty"`
	Step     int       `json:"step,omitempty" doc:"number of the step, from 1"`
	Steps    int       `json:"steps,omitempty" doc:"how many there are"`
	Stage    string    `json:"stage,omitempty" doc:"of a pull: pull or unpack"`
	Layer    string    `json:"layer,omitempty" doc:"digest of the layer that done and total are about"`
	Done     int64     `json:"done,omitempty" doc:"bytes"`
	Total    int64     `json:"total,omitempty" doc:"bytes"`
	Cached   bool      `json:"cached,omitempty" doc:"the step was done by an earlier build"`
	Made     *Template `json:"made,omitempty" doc:"with the kind done"`
}
