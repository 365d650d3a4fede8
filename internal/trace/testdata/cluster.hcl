# 8 nodes of 8 GPUs under two leaf switches, and whose they are. Together with
# day.csv, a day of made-up work for them:
#
#   gangd trace -cluster cluster.hcl -tier interactive:max-gpus=1 -compare day.csv

cluster {
  node "n" {
    count  = 8
    fanout = { leaf = 4 }
  }
}

tenant "studio" {
  weight     = 2
  guaranteed = 16
}

tenant "film" {
  weight = 2
}

tenant "lab" {
  weight = 1
}

model "wan" {
  load = "40s"
}

model "hunyuan" {
  load = "90s"
}
