# The table of github.com/tsuzuki-go/tsuzuki, as Terraform. A test holds it against what dynamostore.CreateTable makes.

variable "table_name" {
  type    = string
  default = "sagas"
}

resource "aws_dynamodb_table" "sagas" {
  name         = var.table_name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "idempotency_key"
  range_key    = "part"

  # The records are what keeps a payment from being made twice.
  deletion_protection_enabled = true

  attribute {
    name = "idempotency_key"
    type = "S"
  }

  attribute {
    name = "part"
    type = "S"
  }

  attribute {
    name = "open_shard"
    type = "N"
  }

  attribute {
    name = "created_at"
    type = "N"
  }

  # The runs that have not ended or have unsent messages. Leave it out, with its two attributes above, for a store made
  # WithoutIndex.
  global_secondary_index {
    name            = "open"
    hash_key        = "open_shard"
    range_key       = "created_at"
    projection_type = "KEYS_ONLY"
  }

  ttl {
    attribute_name = "expiration"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }
}

# What a process that runs sagas may do, and nothing else.
data "aws_iam_policy_document" "sagas" {
  statement {
    sid       = "Records"
    actions   = ["dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
    resources = [aws_dynamodb_table.sagas.arn]
  }

  statement {
    sid       = "OpenRuns"
    actions   = ["dynamodb:Query"]
    resources = ["${aws_dynamodb_table.sagas.arn}/index/open"]
  }

  # For dynamostore.Check alone.
  statement {
    sid       = "Check"
    actions   = ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
    resources = [aws_dynamodb_table.sagas.arn]
  }
}

resource "aws_iam_policy" "sagas" {
  name_prefix = "sagas-"
  policy      = data.aws_iam_policy_document.sagas.json
}

output "table_name" {
  value = aws_dynamodb_table.sagas.name
}

output "policy_arn" {
  value = aws_iam_policy.sagas.arn
}
