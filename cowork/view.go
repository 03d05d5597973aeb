package cowork

// View is how far a run is, node by node.
type View struct{ Nodes []NodeView }

// NodeView is how a vertex is.
type NodeView struct {
	Name   string
	Status string // "" = not decided
	Begun  bool
}

// View says how far the run is.
func (s *State) View() View {
	var v View
	for _, n := range s.nodes {
		v.Nodes = append(v.Nodes, NodeView{Name: n.Name, Status: n.status, Begun: n.begun})
	}
	return v
}
