# One agent as a daemon: started with its configuration, ended with all that it left on the machine. A change of
# anything here ends it and starts it anew, with its data.
variable "cluster" {
  description = "ID of the cluster's directories; when they are made anew, so is the agent."
  type        = string
}

variable "data_dir" {
  description = "The cluster's data directory; the agent's own is the one of its name in it."
  type        = string
}

variable "bin_dir" {
  description = "Where the binary is; first on the agent's PATH."
  type        = string
}

variable "kind" {
  description = "consul, nomad or gangd: the binary, and how it is started and asked whether it is ready."
  type        = string
}

variable "name" {
  description = "Unique in the cluster."
  type        = string
}

variable "address" {
  description = "HTTP address, as host:port."
  type        = string
}

variable "config" {
  description = "The agent's configuration, in HCL."
  type        = string
}

resource "terraform_data" "agent" {
  input            = { data_dir = var.data_dir, name = var.name }
  triggers_replace = [var.cluster, var.data_dir, var.bin_dir, var.kind, var.name, var.address, var.config]

  provisioner "local-exec" {
    command     = "'${path.module}/../agent.sh' create '${var.data_dir}' ${var.name} ${var.kind} '${var.bin_dir}' ${var.address}"
    environment = { AGENT_CONFIG = var.config }
  }

  # A client is a machine: when it goes, so do its keepers and tasks, which outlive its agent.
  provisioner "local-exec" {
    when    = destroy
    command = "'${path.module}/../agent.sh' stop '${self.output.data_dir}' ${self.output.name} && '${path.module}/../cluster.sh' sweep '${self.output.data_dir}' ${self.output.name}"
  }
}

output "id" {
  description = "Changes whenever the agent is started anew."
  value       = terraform_data.agent.id
}
