# What Open Policy Agent decides in the tests: everybody may do everything but call a tool that is not `echo`.
package mcp

call := input.attributes.metadataContext.filterMetadata["envoy.filters.http.mcp"]

default decision := {
	"allowed": false,
	"http_status": 403,
	"headers": {"x-decided-by": "policy"},
	"body": "the policy lets nobody call this tool",
}

decision := {"allowed": true} if call.method != "tools/call"

decision := {"allowed": true} if {
	call.method == "tools/call"
	call.params.name == "echo"
}
