# The template of gangd's reference runner. Register it once:
#
#   nomad job run jobspecs/ddim/ddim.nomad.hcl
#
# gangd derives a job from it for each lane, pinned to a node and to GPUs, and dispatches that. This one never runs.

variable "command" {
  type        = string
  default     = "gangd-ddim"
  description = "The runner: a name on the PATH of the Nomad clients, or a path."
}

variable "args" {
  type        = list(string)
  default     = []
  description = "Flags of the runner, as in [\"-load\", \"5s\"]."
}

variable "datacenters" {
  type    = list(string)
  default = ["*"]
}

job "ddim" {
  type        = "batch"
  datacenters = var.datacenters

  parameterized {
    payload       = "forbidden"
    meta_required = ["gangd_lane"]
  }

  group "member" {
    # gangd decides what happens after a failure: Nomad must not start a member by itself.
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    # Nomad wants more room than the logs below can take.
    ephemeral_disk {
      size = 20
    }

    task "runner" {
      driver = "gang"

      config {
        command   = var.command
        args      = var.args
        processes = "gpu"
      }

      # For all ranks of a member together: the bank is small.
      resources {
        cpu    = 100
        memory = 512
      }

      logs {
        max_files     = 2
        max_file_size = 2
      }
    }
  }
}
