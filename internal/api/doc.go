// Package api serves gangd over HTTP: it decodes requests, hands them to the
// agent's scheduler, and encodes what it answers. It decides nothing.
//
//	POST /v1/gangs                 submit, in JSON or HCL: all gangs of the body or none
//	GET  /v1/gangs                 list; ?state= ?tenant= ?prefix= ?limit=
//	GET  /v1/gangs/{id}            one gang
//	POST /v1/gangs/{id}/cancel     202; 200 when repeated; 409 once it has ended otherwise
//	GET  /v1/gangs/{id}/events     server-sent events: status, progress, done
//	GET  /v1/gangs/{id}/artifact   the result; /thumbnail likewise
//	GET  /v1/gangs/{id}/explain    what is to be expected of it
//	POST /v1/gangs/{id}/hold       a gang that waits does not start; /release ends that; 409 once it does not wait
//	POST /v1/gangs/{id}/reorder    {"before": "ID"}, {"to": "first"} or {"to": "last"}, among those of its tenant and tier
//	GET  /v1/shares                tenants and tiers: what they have, want and are entitled to
//	GET  /v1/cluster               nodes and their GPUs; ?node= (repeatable)
//	GET  /v1/maintenance           windows that are planned; PUT and DELETE /v1/maintenance/{name} plan one, or call it off
//	GET  /healthz /readyz /metrics
//
// An agent that does not lead forwards everything below /v1 to the leader,
// once. Errors are JSON, in the shape that OpenAI's clients read.
package api
