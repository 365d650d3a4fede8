variable "servers" {
  description = "Nomad servers: 1, or 3 for a quorum that survives the loss of one."
  type        = number
  default     = 1

  validation {
    condition     = contains([1, 3], var.servers)
    error_message = "Take 1 server or 3."
  }
}

variable "clients" {
  description = "Nomad clients: the simulated GPU nodes."
  type        = number
  default     = 2

  validation {
    condition     = var.clients >= 0 && var.clients <= 100 && floor(var.clients) == var.clients
    error_message = "Take 0 to 100 clients."
  }
}

variable "agents" {
  description = "gangd agents: one leads, the others follow."
  type        = number
  default     = 1

  validation {
    condition     = var.agents >= 0 && var.agents <= 8 && floor(var.agents) == var.agents
    error_message = "Take 0 to 8 agents."
  }
}

variable "with_plugins" {
  description = "Whether the clients run gangd's device and driver plugins. Without them they have no GPUs."
  type        = bool
  default     = true
}

variable "gpus_per_node" {
  description = "Simulated GPUs a client."
  type        = number
  default     = 8

  validation {
    condition     = var.gpus_per_node >= 1 && var.gpus_per_node <= 8 && floor(var.gpus_per_node) == var.gpus_per_node
    error_message = "A simulated server has 1 to 8 GPUs."
  }
}

variable "nodes_per_leaf" {
  description = "Clients below one leaf (rail group); the node metadata gangd_leaf follows from it."
  type        = number
  default     = 2

  validation {
    condition     = var.nodes_per_leaf >= 1 && floor(var.nodes_per_leaf) == var.nodes_per_leaf
    error_message = "A leaf has at least 1 node."
  }
}

variable "leaves_per_spine" {
  description = "Leaves below one spine; the node metadata gangd_spine follows from it."
  type        = number
  default     = 4

  validation {
    condition     = var.leaves_per_spine >= 1 && floor(var.leaves_per_spine) == var.leaves_per_spine
    error_message = "A spine has at least 1 leaf."
  }
}

variable "ready_timeout" {
  description = "How long the members of a gang may take until all are ready, where its template does not say; then the gang is stopped whole, and queued again."
  type        = string
  default     = "60s"
}

variable "protected" {
  description = "How long a gang runs before it may be stopped for another, of any tier."
  type        = string
  default     = "60s"
}

variable "node_pool" {
  description = "Nomad node pool of the clients; null for Nomad's default pool."
  type        = string
  default     = null
}

variable "node_cpu_mhz" {
  description = "CPU that a client offers. The nodes are simulated: it has no relation to this machine."
  type        = number
  default     = 200000
}

variable "node_memory_mib" {
  description = "Memory that a client offers, simulated too."
  type        = number
  default     = 1048576
}

variable "base_port" {
  description = "First of the 200 ports that all others are derived from (the map is in README.md). Clusters side by side need bases 200 apart."
  type        = number
  default     = 4600

  validation {
    condition     = var.base_port >= 1024 && var.base_port <= 32400 && floor(var.base_port) == var.base_port
    error_message = "base_port must lie from 1024 to 32400, below the ports that the kernel hands out."
  }
}

variable "data_dir" {
  description = "Everything that the agents write. Removed by destroy. Keep it short: the paths of Unix sockets below it are limited to 107 bytes. Null: .dev/cluster of the repository."
  type        = string
  default     = null
}

variable "keep_data" {
  description = "Whether destroy leaves data_dir, with its logs, where it is. What counts is its value at the last apply."
  type        = bool
  default     = false
}

variable "blob_dir" {
  description = "The blob store: checkpoints and videos. Never removed. Null: .dev/blob of the repository."
  type        = string
  default     = null
}

variable "bin_dir" {
  description = "Where consul, nomad, gangd and the plugins are. Null: .bin of the repository."
  type        = string
  default     = null
}

variable "log_level" {
  description = "Log level of all agents."
  type        = string
  default     = "INFO"

  validation {
    condition     = contains(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"], var.log_level)
    error_message = "log_level is one of TRACE, DEBUG, INFO, WARN, ERROR."
  }
}

variable "min_heartbeat_ttl" {
  description = "Shortest time after which Nomad misses a client. A dead one is down after one to two of these and heartbeat_grace."
  type        = string
  default     = "5s"
}

variable "heartbeat_grace" {
  description = "What Nomad adds to a client's heartbeat TTL before it calls it down."
  type        = string
  default     = "2s"
}

variable "failover_heartbeat_ttl" {
  description = "How long a new Nomad leader waits for a client's first heartbeat."
  type        = string
  default     = "20s"
}

variable "max_kill_timeout" {
  description = "Longest kill_timeout that a client grants a task."
  type        = string
  default     = "10m"
}
