output "consul" {
  description = "Consul's HTTP address."
  value       = "http://${local.consul_http}"
}

output "nomad" {
  description = "HTTP addresses of the Nomad servers."
  value       = [for p in local.server_ports : "http://127.0.0.1:${p.http}"]
}

output "nomad_clients" {
  description = "HTTP addresses of the Nomad clients, by node name."
  value       = { for c in local.clients : c.name => "http://${c.address}" }
}

output "gangd" {
  description = "HTTP addresses of the gangd agents."
  value       = [for p in local.gangd_ports : "http://127.0.0.1:${p.http}"]
}

output "data_dir" {
  description = "Where the agents write; logs/NAME.log are their logs."
  value       = local.data_dir
}

output "blob_dir" {
  description = "The blob store's directory."
  value       = local.blob_dir
}

output "fault_files" {
  description = "The files, by node name, whose lines make simulated GPUs fail and recover."
  value       = { for c in local.clients : c.name => "${local.data_dir}/${c.name}/faults" }
}

output "env" {
  description = "Environment for the command lines; the file env in data_dir holds the same."
  value       = local.environment
}
