name      = 5
log_level = "loud"
log_jason = true

http {
  address = "4750"
}
link {
  address = "0.0.0.0:4751"
}
consul {
  address = "ftp://consul"
  prefix  = "/"
}
nomad {
  address   = ""
  namespace = ""
}
blob {
  url = "artifacts"
}
topology {
  levels = ["spine", "node"]
}
tier "all that glitters" {
  priority = 5000
}
tier "gold" {
  priority = 1
}
tier "gold" {
  priority = 2
}
start {
  ready_timeout = "0s"
}
limits {
  queue = 0
}
tier "silver" {
  priority = 7
  preempts = ["brass"]
  min_share = 1.5
}
tenant "acme" {
  weight = 0
  quota = 5
}
tenant "acme" {
}
model "wan" {
  speed = { "H100" = "fast" }
}
