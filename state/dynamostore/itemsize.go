package dynamostore

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// itemSize is the size of an item in bytes by DynamoDB's documented rules ("Amazon DynamoDB item sizes and formats"):
// names and strings count their UTF-8, binaries their bytes, numbers about a byte for two significant digits and one
// more, and lists and maps three bytes and one for each element.
func itemSize(it item) int {
	n := 0
	for name, v := range it {
		n += len(name) + valueSize(v)
	}
	return n
}

func valueSize(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + itemSize(v.Value)
	case *types.AttributeValueMemberL:
		n := 3
		for _, e := range v.Value {
			n += 1 + valueSize(e)
		}
		return n
	}
	return 1 // booleans and nulls; the store has no others
}

func numberSize(digits string) int {
	n := 1
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		digits, n = rest, 2
	}
	significant := len(strings.Trim(strings.Replace(digits, ".", "", 1), "0"))
	return n + (significant+1)/2
}
