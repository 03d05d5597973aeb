package llm

import "context"

type tenantKey struct{}

// ForTenant says for whom models are opened with the context: some vendors keep what they
// know of one tenant apart from what they know of another.
func ForTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// TenantOf returns for whom a model is opened, "" = for no tenant.
func TenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}
