// Runs what a test asks for: one JSON request a line on standard input, one JSON answer a line on standard output.
//
//	{"module": "event_hubs", "name": "send", "arguments": {...}}  ->  {"facts": ...}  or  {"error": {...}}
//
// Requests come one after the other; nothing is asserted here, tests judge the facts.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Time for one operation: below the time that the test waits for the answer.
const patience = 2 * time.Minute

type request struct {
	Module    string          `json:"module"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type failure struct {
	Name    string `json:"name"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

type operation func(ctx context.Context, arguments json.RawMessage) (any, error)

var modules = map[string]map[string]operation{
	"event_hubs": eventHubs,
	"identity":   identities,
	"franz":      franz,
	"sarama":     saramas,
	"kafkago":    kafkaGo,
}

// With makes an operation of a function that takes its arguments as a struct.
func with[A any](work func(ctx context.Context, given A) (any, error)) operation {
	return func(ctx context.Context, arguments json.RawMessage) (any, error) {
		var given A
		if err := json.Unmarshal(arguments, &given); err != nil {
			return nil, err
		}
		return work(ctx, given)
	}
}

func answer(line []byte) any {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]any{"error": describeError(err)}
	}
	work, ok := modules[asked.Module][asked.Name]
	if !ok {
		return map[string]any{"error": describeError(fmt.Errorf("no operation %s.%s", asked.Module, asked.Name))}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	facts, err := work(ctx, asked.Arguments)
	if err != nil {
		return map[string]any{"error": describeError(err)}
	}
	return map[string]any{"facts": facts}
}

func describeError(err error) failure {
	for _, code := range []func(error) string{eventHubsCode, franzCode, saramaCode, kafkaGoCode} {
		if found := code(err); found != "" {
			return failure{Name: fmt.Sprintf("%T", err), Code: found, Message: err.Error()}
		}
	}
	return failure{Name: fmt.Sprintf("%T", err), Message: err.Error()}
}

// trust makes a configuration that trusts the authority in a file; nil when there is no file: no TLS then.
func trust(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: pool}, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := answers.Encode(answer(lines.Bytes())); err != nil {
			os.Exit(1)
		}
	}
}
