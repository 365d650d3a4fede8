# A whole cluster on loopback: Consul, Nomad servers, Nomad clients that simulate DGX H100 servers, and gangd.
# Everything depends on what must be up before it; so destroy ends it in the opposite order.

locals {
  root     = abspath("${path.module}/../..")
  data_dir = abspath(coalesce(var.data_dir, "${local.root}/.dev/cluster"))
  blob_dir = abspath(coalesce(var.blob_dir, "${local.root}/.dev/blob"))
  bin_dir  = abspath(coalesce(var.bin_dir, "${local.root}/.bin"))
  plugins  = var.with_plugins ? ["gangd-device", "gangd-driver"] : []

  consul_http = "127.0.0.1:${var.base_port}"

  server_ports = [for i in range(var.servers) : {
    http = var.base_port + 10 + 3 * i
    rpc  = var.base_port + 11 + 3 * i
    serf = var.base_port + 12 + 3 * i
  }]
  nomad_http = "127.0.0.1:${local.server_ports[0].http}"

  gangd_ports = [for i in range(var.agents) : {
    http = var.base_port + 150 + 2 * i
    link = var.base_port + 151 + 2 * i
  }]

  environment = join("\n", concat(
    [
      "export PATH=${local.bin_dir}:$PATH",
      "export NOMAD_ADDR=http://${local.nomad_http}",
      "export CONSUL_HTTP_ADDR=http://${local.consul_http}",
    ],
    [for p in slice(local.gangd_ports, 0, min(1, var.agents)) : "export GANGD_ADDR=http://127.0.0.1:${p.http}"],
    [""],
  ))

  consul_config = templatefile("${path.module}/templates/consul.hcl.tftpl", {
    data_dir  = "${local.data_dir}/consul/data"
    log_level = var.log_level
    base_port = var.base_port
  })

  servers = [for i, port in local.server_ports : {
    name    = "server-${i}"
    address = "127.0.0.1:${port.http}"
    config = templatefile("${path.module}/templates/nomad-server.hcl.tftpl", {
      name                   = "server-${i}"
      data_dir               = "${local.data_dir}/server-${i}/data"
      log_level              = var.log_level
      ports                  = port
      consul_address         = local.consul_http
      servers                = var.servers
      join                   = [for p in local.server_ports : "127.0.0.1:${p.serf}"]
      min_heartbeat_ttl      = var.min_heartbeat_ttl
      heartbeat_grace        = var.heartbeat_grace
      failover_heartbeat_ttl = var.failover_heartbeat_ttl
    })
  }]

  clients = [for i in range(var.clients) : {
    name    = "client-${i}"
    address = "127.0.0.1:${var.base_port + 50 + i}"
    config = templatefile("${path.module}/templates/nomad-client.hcl.tftpl", {
      name             = "client-${i}"
      dir              = "${local.data_dir}/client-${i}"
      log_level        = var.log_level
      http_port        = var.base_port + 50 + i
      task_ports       = 20000 + 120 * i
      consul_address   = local.consul_http
      server_addresses = [for p in local.server_ports : "127.0.0.1:${p.rpc}"]
      node_pool        = var.node_pool
      leaf             = floor(i / var.nodes_per_leaf)
      spine            = floor(i / var.nodes_per_leaf / var.leaves_per_spine)
      cpu_mhz          = var.node_cpu_mhz
      memory_mib       = var.node_memory_mib
      max_kill_timeout = var.max_kill_timeout
      cgroup_parent    = "/gangd-dev-${var.base_port}-${i}"
      plugin_dir       = "${local.data_dir}/plugins"
      with_plugins     = var.with_plugins
      gpus             = var.gpus_per_node
    })
  }]

  agents = [for i, port in local.gangd_ports : {
    name    = "gangd-${i}"
    address = "127.0.0.1:${port.http}"
    config = templatefile("${path.module}/templates/gangd.hcl.tftpl", {
      name           = "gangd-${i}"
      http_address   = "127.0.0.1:${port.http}"
      link_address   = "127.0.0.1:${port.link}"
      log_level      = lower(var.log_level)
      consul_address = "http://${local.consul_http}"
      nomad_address  = "http://${local.nomad_http}"
      node_pool      = coalesce(var.node_pool, "default")
      blob_dir       = local.blob_dir
      ready_timeout  = var.ready_timeout
      protected      = var.protected
    })
  }]
}

# The directories; the last to go, with every process, mount and cgroup that is left.
resource "terraform_data" "cluster" {
  input            = { data_dir = local.data_dir, keep_data = var.keep_data }
  triggers_replace = [local.data_dir, local.plugins, local.environment]

  provisioner "local-exec" {
    command     = "'${path.module}/cluster.sh' prepare '${local.data_dir}' '${local.bin_dir}' '${local.blob_dir}' '${join(" ", local.plugins)}'"
    environment = { ENVIRONMENT = local.environment }
  }

  provisioner "local-exec" {
    when    = destroy
    command = "'${path.module}/cluster.sh' remove '${self.output.data_dir}' '${self.output.keep_data}'"
  }
}

module "consul" {
  source   = "./agent"
  cluster  = terraform_data.cluster.id
  data_dir = local.data_dir
  bin_dir  = local.bin_dir
  kind     = "consul"
  name     = "consul"
  address  = local.consul_http
  config   = local.consul_config
}

module "server" {
  source     = "./agent"
  count      = var.servers
  cluster    = terraform_data.cluster.id
  data_dir   = local.data_dir
  bin_dir    = local.bin_dir
  kind       = "nomad"
  name       = local.servers[count.index].name
  address    = local.servers[count.index].address
  config     = local.servers[count.index].config
  depends_on = [module.consul]
}

# A client that finds no leader tries again only after 15 seconds: wait for one before the first client starts.
resource "terraform_data" "election" {
  triggers_replace = module.server[*].id

  provisioner "local-exec" {
    command = "'${path.module}/cluster.sh' elected '${local.data_dir}' ${local.nomad_http}"
  }
}

module "client" {
  source     = "./agent"
  count      = var.clients
  cluster    = terraform_data.cluster.id
  data_dir   = local.data_dir
  bin_dir    = local.bin_dir
  kind       = "nomad"
  name       = local.clients[count.index].name
  address    = local.clients[count.index].address
  config     = local.clients[count.index].config
  depends_on = [terraform_data.election]
}

# Complete once every node is ready, with its GPUs.
resource "terraform_data" "nodes" {
  triggers_replace = module.client[*].id

  provisioner "local-exec" {
    command = "'${path.module}/cluster.sh' nodes '${local.data_dir}' '${local.bin_dir}' ${local.nomad_http} ${var.clients} ${var.with_plugins ? var.gpus_per_node : 0}"
  }
}

# At the end all jobs are stopped here: gangd no longer opens lanes, and Nomad is still whole.
resource "terraform_data" "jobs" {
  input            = { bin_dir = local.bin_dir, nomad = local.nomad_http }
  triggers_replace = terraform_data.cluster.id
  depends_on       = [module.client]

  provisioner "local-exec" {
    when    = destroy
    command = "'${path.module}/cluster.sh' stop-jobs '${self.output.bin_dir}' ${self.output.nomad}"
  }
}

module "gangd" {
  source     = "./agent"
  count      = var.agents
  cluster    = terraform_data.cluster.id
  data_dir   = local.data_dir
  bin_dir    = local.bin_dir
  kind       = "gangd"
  name       = local.agents[count.index].name
  address    = local.agents[count.index].address
  config     = local.agents[count.index].config
  depends_on = [terraform_data.nodes, terraform_data.jobs]
}
