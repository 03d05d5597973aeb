package registrytest

import "testing"

func TestMemory(t *testing.T) {
	RegistrySuite(t, func(*testing.T) Registry { return NewMemory() })
}
