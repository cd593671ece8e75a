"""Chat templates: `mantissa tokenizer chat` writes the bytes of transformers' apply_chat_template.

    chat_templates.py MANTISSA              compares fixed and random conversations
    chat_templates.py --write GOLDEN.json   writes the fixed ones with their bytes (tests/fixtures/chat_templates.json)

The llama3 and qwen3 templates are those of the tokenizer folders under MANTISSA_TEST_DATA.
"""
import json
import os
import random
import subprocess
import sys

SKIPPED = 77
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def turns(text):
    """"s:a|u:b|a:c" as messages."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[part[0]], "content": part[2:]} for part in text.split("|/")]


FIXED = [turns(text) for text in (
    "u:Hello",
    "u:What is 2 + 2?|/a:4",
    "s:You add numbers.|/u:What is 2 + 2?|/a:4",
    "u:one|/a:first|/u:two|/a:second|/u:three",
    "s:Short answers.|/u:one|/a:first|/u:two|/a:second",
    "u:  spaces \t\n|/a:\n\n answer\r\n ",
    "u:\u00a0\u3000wide\u2003\u2028|/a:\x1c\x1d\x85odd\u200b\x1f\u180e",
    "u:\ufeffmark|/a:\u1680ogham\u202f\u205f",
    "u:|/a:",
    "u:\n|/a:\n\n\n",
    "u:q|/a:<think>\nreason\n</think>\n\nanswer",
    "u:q|/a:<think>\n\n\nreason\nmore\n\n</think>\n\n\n\nanswer\n",
    "u:q|/a:<think></think>answer",
    "u:q|/a:reason without a start</think>answer",
    "u:q|/a:<think>no end",
    "u:q|/a:<think>a</think>b<think>c</think>d",
    "u:q|/a:<think>a<think>b</think>c",
    "u:q|/a:<think>old</think>\n\nfirst|/u:again|/a:<think>\nfresh\n</think>\n\nsecond",
    "u:q|/a:<think>kept</think>first|/a:second",
    "u:q|/a:first|/a:<think>why</think>second|/a:third",
    "u:q|/a:call|/u:<tool_response>\n42\n</tool_response>|/a:It is 42.",
    "u:<tool_response>1</tool_response>|/a:nobody asked",
    "s:rules|/a:opening words",
    "a:opening words|/u:reply",
    "u:q|/s:late rules|/a:answer",
    "s:one|/s:two|/u:q|/a:answer",
    "u:{{ messages }} {% if x %} \\n <b>&amp;</b> 'quotes' \"double\"|/a:{# none #}",
    "u:<|im_end|><|eot_id|> in the text|/a:<|im_start|>user",
    "u:Grüße, 世界 🌍 नमस्ते|/a:e\u0301 \u1112\u1161\u11ab",
)]
OPTIONS = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "enable_thinking": False}]


def random_conversations(count):
    draw = random.Random(7)
    pieces = ["<think>", "</think>", "\n", "\n\n", " ", "\u00a0", "\u3000", "\x85", "\t", "a", "why", "é", "世", "🌍",
              "<tool_response>", "</tool_response>", "<|im_end|>", "<|eot_id|>", "{{", "\u200b", "\r"]
    for _ in range(count):
        yield [{"role": draw.choice(["system", "user", "user", "assistant", "assistant"]),
                "content": "".join(draw.choice(pieces) for _ in range(draw.randrange(9)))}
               for _ in range(draw.randrange(1, 7))]


def templates(data):
    from transformers import AutoTokenizer
    folder = os.path.join(data, "tokenizers")
    llama3 = AutoTokenizer.from_pretrained(os.path.join(folder, "llama3"))
    qwen3 = AutoTokenizer.from_pretrained(os.path.join(folder, "qwen3"))
    return {"chatml": (qwen3, CHATML), "llama3": (llama3, llama3.chat_template), "qwen3": (qwen3, qwen3.chat_template)}


def rendered(tokenizer, template, messages, options):
    return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **options)


def write(path, sources):
    cases = [{"template": name, "messages": messages, "options": options,
              "text": rendered(tokenizer, template, messages, options)}
             for name, (tokenizer, template) in sources.items() for messages in FIXED for options in OPTIONS
             if name == "qwen3" or "enable_thinking" not in options]
    with open(path, "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{path}: {len(cases)} conversations")


def compare(binary, sources):
    conversations = FIXED + list(random_conversations(3000))
    lines = "".join(json.dumps({"messages": messages}) + "\n" for messages in conversations)
    for name, (tokenizer, template) in sources.items():
        for options in OPTIONS:
            flags = ["--generation-prompt"] if options.get("add_generation_prompt") else []
            flags += ["--no-thinking"] if "enable_thinking" in options else []
            run = subprocess.run([binary, "tokenizer", "chat", "--template", name, *flags, "-"], input=lines.encode(),
                                 capture_output=True, check=True)
            answers = [json.loads(line) for line in run.stdout.decode().split("\n") if line]
            assert len(answers) == len(conversations), (name, len(answers))
            for messages, answer in zip(conversations, answers):
                expected = rendered(tokenizer, template, messages, options)
                found = "".join(span["text"] for span in answer["spans"])
                assert found == expected, f"{name} {options} {messages!r}\nfound    {found!r}\nexpected {expected!r}"
        print(f"{name}: {len(OPTIONS) * len(conversations)} conversations, equal bytes")


def main():
    data = os.environ.get("MANTISSA_TEST_DATA")
    if not data or not os.path.isdir(os.path.join(data, "tokenizers")):
        print("skipped: MANTISSA_TEST_DATA names no folder with tokenizers/")
        return SKIPPED
    try:
        sources = templates(data)
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIPPED
    if sys.argv[1] == "--write":
        write(sys.argv[2], sources)
    else:
        compare(sys.argv[1], sources)
    return 0


if __name__ == "__main__":
    sys.exit(main())
