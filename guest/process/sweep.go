package process

func (c *Core) sweep(p *proc) {}
