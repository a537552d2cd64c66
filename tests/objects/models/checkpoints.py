"""A tiny language model with random weights, as a Hugging Face checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

CONTEXT = 256


def write(folder: Path, *, template: bool = True) -> "LlamaForCausalLM":
    """Write the checkpoint, with a token for each byte; return the model."""
    import torch  # every worker of pytest imports this module
    from transformers import LlamaForCausalLM

    from serving.runtimes.transformers import llama

    tokenizer = llama.for_chats(llama.byte_level())
    if not template:
        tokenizer.chat_template = None
    torch.manual_seed(7)
    config = llama.config(tokenizer, width=64, layers=2, context=CONTEXT, initializer_range=0.3)
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    return model
