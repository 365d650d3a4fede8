# Only the built-in terraform_data is used: terraform init downloads nothing.
terraform {
  required_version = ">= 1.5"
}
