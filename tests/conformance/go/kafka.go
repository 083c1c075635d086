// What the Kafka clients under test have in common: the same operations with the same arguments and facts.
package main

import (
	"crypto/tls"
	"strconv"
)

type kafkaPlace struct {
	Broker   string `json:"broker"`
	CA       string `json:"ca"`
	User     string `json:"user"`
	Password string `json:"password"`
}

func (at kafkaPlace) tls() (*tls.Config, error) {
	return trust(at.CA)
}

type header [2]string

type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Headers   []header `json:"headers"`
	TimeMs    int64    `json:"timeMs"`
}

type producing struct {
	Place      kafkaPlace `json:"place"`
	Topic      string     `json:"topic"`
	Records    []record   `json:"records"`
	Codec      string     `json:"codec"`
	Acks       *int       `json:"acks"`
	Idempotent bool       `json:"idempotent"`
}

// reading is of one partition, without a group; Start is an offset, -2 the beginning and -1 the end.
type reading struct {
	Place     kafkaPlace `json:"place"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Start     int64      `json:"start"`
	Count     int        `json:"count"`
	Committed bool       `json:"committed"`
}

type grouping struct {
	Place    kafkaPlace `json:"place"`
	Topic    string     `json:"topic"`
	Group    string     `json:"group"`
	Instance string     `json:"instance"`
	Count    int        `json:"count"`
	Members  int        `json:"members"`
	// Protocol is `consumer` where the node assigns partitions (KIP-848); then the topic may be a regular expression.
	Protocol  string `json:"protocol"`
	IsPattern bool   `json:"isPattern"`
}

// step is one transaction: what it writes, which offset of a group it carries, and whether it is kept.
type step struct {
	Topic  string   `json:"topic"`
	Values []string `json:"values"`
	Group  string   `json:"group"`
	Offset int64    `json:"offset"`
	IsKept bool     `json:"isKept"`
}

type transacting struct {
	Place kafkaPlace `json:"place"`
	ID    string     `json:"id"`
	Topic string     `json:"topic"`
	Steps []step     `json:"steps"`
}

type administering struct {
	Place      kafkaPlace        `json:"place"`
	Topic      string            `json:"topic"`
	Partitions int32             `json:"partitions"`
	Partition  int32             `json:"partition"`
	Offset     int64             `json:"offset"`
	TimeMs     int64             `json:"timeMs"`
	Configs    map[string]string `json:"configs"`
	Group      string            `json:"group"`
}

func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func textOf(data []byte) *string {
	if data == nil {
		return nil
	}
	text := string(data)
	return &text
}

func number[N ~int16 | ~int](code N) string {
	return strconv.Itoa(int(code))
}
