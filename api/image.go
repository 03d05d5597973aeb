package api

// PullTemplate asks for a template to be made of an image in a registry. The
// name and password are used once and kept nowhere.
type PullTemplate struct {
	Reference     string `json:"reference" minLength:"1" maxLength:"1000" doc:"such as debian:bookworm or registry.example/owner/name@sha256:…"`
	Name          string `json:"name,omitempty" maxLength:"64" doc:"of the template; default the last part of the image's name"`
	Platform      string `json:"platform,omitempty" maxLength:"100" doc:"default this machine's, such as linux/amd64"`
	InsecureHTTP  bool   `json:"insecure_http,omitempty" doc:"plain HTTP may be spoken with the registry"`
	Username      string `json:"username,omitempty" maxLength:"1000"`
	Password      string `json:"password,omitempty" maxLength:"100000"`
	IdentityToken string `json:"identity_token,omitempty" maxLength:"100000" doc:"instead of a password, as docker login keeps it"`
	RegistryToken string `json:"registry_token,omitempty" maxLength:"100000" doc:"the same"`
}

// TemplateSource says which image a template was made of, and what that says
// about itself. Entrypoint, cmd, user and working_dir are for information.
type TemplateSource struct {
	Reference  string   `json:"reference,omitempty"`
	Digest     string   `json:"digest"`
	Platform   string   `json:"platform,omitempty"`
	Env        []string `json:"env,omitempty" doc:"set in sandboxes"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// TemplateUsage is what templates take of the disk.
type TemplateUsage struct {
	Trees      int   `json:"trees"`
	TreeBytes  int64 `json:"tree_bytes"`
	Images     int   `json:"images" doc:"ext4 images for machines with a kernel of their own"`
	ImageBytes int64 `json:"image_bytes"`
	Blobs      int   `json:"blobs" doc:"layers as they came from registries"`
	BlobBytes  int64 `json:"blob_bytes"`
}

// TemplatesSwept is what was deleted.
type TemplatesSwept struct {
	Trees  int   `json:"trees"`
	Images int   `json:"images"`
	Blobs  int   `json:"blobs"`
	Bytes  int64 `json:"bytes" doc:"of images and blobs"`
}
