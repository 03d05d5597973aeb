package template

import "github.com/skete-dev/skete/template/oci"

// NewAuth is how to sign in at a registry: a name and password, or one of the
// tokens that `docker login` keeps. Nothing of it is kept.
func NewAuth(username, password, identityToken, registryToken string) oci.Auth {
	return oci.NewAuth(username, password, identityToken, registryToken)
}
